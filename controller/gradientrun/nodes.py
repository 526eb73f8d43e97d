"""The status of a run's nodes one by one, and of its pools, summed from them: pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradientmail.run import Pool
from gradientmail.run_status import NODES_LISTED
from gradientrun.accounts import Record
from gradientrun.observed import JobView, PodView
from gradientrun.stalls import failure_words, pod_stall
from gradientrun.verdict import Facts, finished_at

MESSAGE_LIMIT = 1024

NodeStatus = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Node:
    """What is known about one node."""

    name: str
    index: int
    pods: Sequence[PodView]
    records: Sequence[Record]
    job: JobView | None
    previous: Mapping[str, Any]
    """What the last status said of it."""

    @property
    def pod(self) -> PodView | None:
        """Its latest pod, one that may yet run before one that has ended."""
        return max(self.pods, key=lambda pod: (not pod.over, pod.created), default=None)


def node_statuses(facts: Facts, records: Iterable[Record], *, over: bool) -> list[NodeStatus]:
    """Return the status of every node that the run should have. `over`: the attempt has ended."""
    pods: defaultdict[str, list[PodView]] = defaultdict(list)
    for pod in facts.pods:
        pods[pod.node].append(pod)
    counts: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        counts[record.node].append(record)
    jobs = {job.pool: job for job in facts.jobs}
    previous = {node.get("name"): node for node in facts.before.get("nodes") or []}
    names = [(pool, index, f"{pool.name}-{index}") for pool in facts.run.pools for index in range(pool.replicas)]
    return [
        _status(
            pool, _Node(name, index, pods[name], counts[name], jobs.get(pool.name), previous.get(name, {})), facts, over
        )
        for pool, index, name in names
    ]


def listed(nodes: list[NodeStatus]) -> list[NodeStatus]:
    """Return the nodes that a status names: all, or those in trouble before those that run well."""
    if len(nodes) > NODES_LISTED:
        nodes = sorted(nodes, key=lambda node: ("message" not in node, node["phase"] != "Running"))
    return nodes[:NODES_LISTED]


def pool_status(pool: Pool, nodes: Iterable[NodeStatus], records: Iterable[Record]) -> dict[str, Any]:
    """Return the status of a pool. Units count those of nodes that have been removed."""
    phases = [node["phase"] for node in nodes if node["pool"] == pool.name]
    mine = [record for record in records if record.node.rpartition("-")[0] == pool.name]
    return {
        "name": pool.name,
        "replicas": pool.replicas,
        "running": phases.count("Running"),
        "succeeded": phases.count("Succeeded"),
        "failed": phases.count("Failed"),
        "claimed": sum(record.claimed for record in mine),
        "consumed": sum(record.consumed for record in mine),
    }


def _status(pool: Pool, node: _Node, facts: Facts, over: bool) -> NodeStatus:
    pod = node.pod
    if pod is None and node.previous and finished_at(facts.before):
        return _after_the_end(node.previous)
    status = {
        "name": node.name,
        "pool": pool.name,
        "pod": pod.name if pod else None,
        "phase": _phase(node, pod, facts, over),
        "claimed": sum(record.claimed for record in node.records),
        "consumed": sum(record.consumed for record in node.records),
        "step": _step(node, pod, facts),
        "restarts": _restarts(node, pod),
        "message": _message(node, pod, facts)[:MESSAGE_LIMIT] or None,
    }
    return {key: value for key, value in status.items() if value is not None}


def _after_the_end(previous: Mapping[str, Any]) -> NodeStatus:
    if previous.get("phase") != "Running":
        return dict(previous)
    return {"message": "stopped with the run", **previous, "phase": "Failed"}


def _phase(node: _Node, pod: PodView | None, facts: Facts, over: bool) -> str:
    job = node.job
    if job is not None and node.index in job.succeeded:
        return "Succeeded"
    if job is not None and node.index in job.failed:
        return "Failed"
    if pod is None:
        return "Pending"
    if pod.succeeded:
        return "Succeeded"
    if (job is not None and job.finished == "Failed") or (over and pod.over):
        return "Failed"
    return "Running" if pod.live(facts.now) else "Pending"


def _restarts(node: _Node, pod: PodView | None) -> int:
    """Kubernetes counts per Job, and begins anew once the pods are gone, as after suspending; this goes on."""
    before = int(node.previous.get("restarts", 0))
    again = pod is not None and not pod.over and pod.failures > 0 and pod.name != node.previous.get("pod")
    return max([before + again, *(pod.failures for pod in node.pods)])


def _step(node: _Node, pod: PodView | None, facts: Facts) -> int | None:
    final = pod.final if pod else None
    if final is not None and final.step is not None:
        return final.step
    fresh = facts.observed.counts.get(pod.name) if pod else None
    return fresh.step if fresh and fresh.step is not None else node.previous.get("step")


def _message(node: _Node, pod: PodView | None, facts: Facts) -> str:
    if pod is None:
        return ""
    if pod.missing(facts.now):
        return "its host does not answer"
    stall = pod_stall(pod, facts.observed, facts.now)
    if stall is not None:
        return f"{stall.reason}: {stall.words}"
    if pod.disruption and not pod.over:
        return pod.disruption
    failed = [words for words in map(failure_words, sorted(node.pods, key=lambda pod: pod.created)) if words]
    return failed[-1] if failed and not pod.succeeded else ""
