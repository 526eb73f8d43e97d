"""Objects as the API server gives them, for the controller's tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from gradientrun.observed import Observed, read_observed
from gradientrun.runs import Manifest, Run, read_run

UID = "6f1f0e9a-0001-4000-8000-000000000001"
START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PREFIX = f"s3://bucket/runs/team/first/{UID}-1"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_manifest(*, status: Manifest | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """Two pools, 8 units: `fast` with 2 nodes, `slow` with 1."""
    manifest: Manifest = {
        "apiVersion": "gradientmail.io/v1alpha1",
        "kind": "GradientRun",
        "metadata": {
            "name": "first",
            "namespace": "team",
            "uid": UID,
            "generation": 1,
            "resourceVersion": "100",
            "creationTimestamp": text(-1),
            "labels": labels or {},
        },
        "spec": {
            "data": {"steps": 40, "batch": 64, "lanes": 4, "unitSteps": 20},
            "mailbox": {"url": "s3://bucket/runs/", "secretName": "bucket"},
            "trainer": {"image": "trainer:1"},
            "nodes": [{"name": "fast", "replicas": 2}, {"name": "slow", "replicas": 1, "gpus": 0}],
            "maxLostUnits": "50%",
        }
        | spec,
    }
    return manifest | ({"status": status} if status is not None else {})


def a_run(*, status: Manifest | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Run:
    return read_run(run_manifest(status=status, labels=labels, **spec))


def job_manifest(
    pool: str = "fast", *, attempt: int = 1, replicas: int = 2, suspend: bool = False, queue: str = "", **status: Any
) -> Manifest:
    return {
        "metadata": {
            "name": f"first-{pool}-{attempt}",
            "namespace": "team",
            "uid": f"job-{pool}-{attempt}",
            "resourceVersion": "101",
            "labels": {
                "gradientmail.io/run": "first",
                "gradientmail.io/run-uid": UID,
                "gradientmail.io/pool": pool,
                "gradientmail.io/attempt": str(attempt),
            }
            | ({"kueue.x-k8s.io/queue-name": queue} if queue else {}),
            "ownerReferences": [{"uid": UID, "controller": True}],
        },
        "spec": {"completions": replicas, "parallelism": replicas, "suspend": suspend},
        "status": {"startTime": text(1)} | status,
    }


def finished(kind: str, reason: str = "", message: str = "") -> Manifest:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message}]}


def pod_manifest(
    node: str = "fast-0",
    suffix: str = "aaaaa",
    *,
    attempt: int = 1,
    created: float = 2,
    failures: int = 0,
    deleted: float | None = None,
    **status: Any,
) -> Manifest:
    pool, _, index = node.rpartition("-")
    metadata: Manifest = {
        "name": f"first-{node}-{suffix}",
        "namespace": "team",
        "uid": f"pod-{node}-{suffix}",
        "resourceVersion": "102",
        "creationTimestamp": text(created),
        "labels": {
            "gradientmail.io/run": "first",
            "gradientmail.io/run-uid": UID,
            "gradientmail.io/pool": pool,
            "gradientmail.io/attempt": str(attempt),
            "batch.kubernetes.io/job-completion-index": index,
        },
        "annotations": {"batch.kubernetes.io/job-index-failure-count": str(failures)},
        "ownerReferences": [{"kind": "Job", "uid": f"job-{pool}-{attempt}", "controller": True}],
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = text(deleted)
    return {"metadata": metadata, "status": {"phase": "Pending"} | status}


def scheduled() -> list[Manifest]:
    return [{"type": "PodScheduled", "status": "True"}]


def running(started: float = 5, address: str = "10.0.0.1") -> Manifest:
    """The status of a pod whose trainer runs."""
    return {
        "phase": "Running",
        "podIP": address,
        "conditions": scheduled(),
        "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": text(started)}}}],
    }


def waiting(reason: str, message: str, container: str = "trainer") -> Manifest:
    """The status of a scheduled pod with a container that does not start."""
    return {
        "phase": "Pending",
        "conditions": scheduled(),
        "containerStatuses": [{"name": container, "state": {"waiting": {"reason": reason, "message": message}}}],
    }


def unschedulable(message: str) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def ended(
    code: int, message: str = "", *, reason: str = "", started: float = 5, finished: float = 60, phase: str = ""
) -> Manifest:
    """The status of a pod whose trainer has ended."""
    state = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error"), "message": message}
    times = {"startedAt": text(started), "finishedAt": text(finished)}
    return {
        "phase": phase or ("Succeeded" if code == 0 else "Failed"),
        "conditions": scheduled(),
        "containerStatuses": [{"name": "trainer", "state": {"terminated": state | times}}],
    }


def last_words(claimed: int, consumed: int, *, phase: str = "finished", message: str = "", step: int = 39) -> str:
    """A termination message."""
    record = {"learner": "l", "node": "n", "phase": phase, "claimed": claimed, "consumed": consumed}
    return json.dumps(record | {"message": message, "step": step})


def observed(run: Run, *children: Manifest, **more: Any) -> Observed:
    """What is seen of the run's children: Jobs are told from Pods by their labels."""
    index = "batch.kubernetes.io/job-completion-index"
    jobs = [child for child in children if index not in child["metadata"]["labels"]]
    pods = [child for child in children if index in child["metadata"]["labels"]]
    seen = read_observed(run, jobs, pods)
    return Observed(jobs=seen.jobs, pods=seen.pods, **more)
