"""One run of a test, seen and changed through the API server and the bucket."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gradientmail.layout import CONSUMED, UNITS
from tests.cluster.harness.api import CONFIG_MAPS, EVENTS, JOBS, PODS, RUNS, Api, Object
from tests.cluster.harness.store import Store
from tests.cluster.harness.waiting import until

ENDS = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Run:
    """A run by its namespace and name. What is read is read anew each time."""

    api: Api
    store: Store
    namespace: str
    name: str

    @property
    def manifest(self) -> Object:
        """The object as it is now."""
        return self.api.get(RUNS, self.namespace, self.name)

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status; empty before the controller has seen it."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def uid(self) -> str:
        """UID of the object."""
        uid: str = self.manifest["metadata"]["uid"]
        return uid

    @property
    def prefix(self) -> str:
        """The mailbox that the status names; empty before the controller has seen the run."""
        return str(self.status.get("mailboxPrefix", ""))

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition; empty if it is not there."""
        return condition(self.status, kind)

    def pods(self, pool: str | None = None) -> list[Object]:
        """Return the pods that carry its name."""
        return self.api.list(PODS, self.namespace, self._labels(pool))

    def jobs(self) -> list[Object]:
        """Return the Jobs that carry its name."""
        return self.api.list(JOBS, self.namespace, self._labels())

    def config_maps(self) -> list[Object]:
        """Return the ConfigMaps that carry its name."""
        return self.api.list(CONFIG_MAPS, self.namespace, self._labels())

    def events(self) -> Counter[str]:
        """Return how often each reason has been told of it."""
        told: Counter[str] = Counter()
        for event in self.api.list(EVENTS, self.namespace):
            if event["involvedObject"].get("name") == self.name and event["involvedObject"]["kind"] == "GradientRun":
                told[event["reason"]] += event.get("count") or 1
        return told

    def running_pods(self, pool: str | None = None) -> list[Object]:
        """Return the pods whose trainer runs and that are not being deleted."""
        return [pod for pod in self.pods(pool) if is_running(pod)]

    def claims(self) -> dict[str, str]:
        """Return the learner that owns each claimed unit, from the bucket."""
        return self.store.objects(f"{self.prefix}/{UNITS}") if self.prefix else {}

    def receipts(self) -> set[str]:
        """Return the units with a receipt, from the bucket."""
        return set(self.store.names(f"{self.prefix}/{CONSUMED}"))

    def last_words(self) -> dict[str, Object]:
        """Return the termination message of each pod, all of which must have ended."""
        return {
            pod["metadata"]["name"]: json.loads(status["state"]["terminated"]["message"])
            for pod in self.pods()
            for status in pod["status"]["containerStatuses"]
            if status["name"] == "trainer"
        }

    def patch(self, **spec: Any) -> None:
        """Merge fields into the spec, as `kubectl patch --type merge` does."""
        self.api.patch(RUNS, self.namespace, self.name, {"spec": spec})

    def scale(self, **replicas: int) -> None:
        """Set the replicas of pools."""
        nodes = [
            {**pool, "replicas": replicas.get(pool["name"], pool["replicas"])}
            for pool in self.manifest["spec"]["nodes"]
        ]
        self.patch(nodes=nodes)

    def delete(self) -> None:
        """Delete the run."""
        self.api.delete(RUNS, self.namespace, self.name)

    def wait(self, holds: Callable[[Mapping[str, Any]], object], what: str, seconds: float) -> Mapping[str, Any]:
        """Wait until the status is as asked, and return it."""
        return until(
            lambda: status if holds(status := self.status) else None,
            f"{what} of {self.namespace}/{self.name}",
            seconds,
            lambda: summary(self.status),
        )

    def wait_phase(self, phase: str, seconds: float) -> Mapping[str, Any]:
        """Wait for a phase; fails at once if the run has ended in another."""

        def reached(status: Mapping[str, Any]) -> bool:
            now = status.get("phase")
            assert now == phase or now not in ENDS, f"{self.namespace}/{self.name} has ended: {summary(status)}"
            return now == phase

        return self.wait(reached, f"phase {phase}", seconds)

    def wait_condition(self, kind: str, seconds: float, reason: str | None = None) -> Mapping[str, Any]:
        """Wait until a condition is true, for a reason if one is given, and return it."""

        def holds(status: Mapping[str, Any]) -> bool:
            found = condition(status, kind)
            return found.get("status") == "True" and reason in (None, found["reason"])

        return condition(self.wait(holds, f"condition {kind} ({reason or 'any reason'})", seconds), kind)

    def wait_event(self, reason: str) -> Counter[str]:
        """Wait until a reason has been told, and return how often each has. Events follow the status they tell of."""
        return until(
            lambda: told if (told := self.events())[reason] else None,
            f"an event {reason} of {self.namespace}/{self.name}",
            30,
            self.events,
        )

    def wait_running(self, count: int, seconds: float, pool: str | None = None) -> list[Object]:
        """Wait until exactly so many trainers run, and return their pods."""
        return until(
            lambda: pods if len(pods := self.running_pods(pool)) == count else None,
            f"{count} running pods of {self.namespace}/{self.name}",
            seconds,
            lambda: [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in self.pods()],
        )

    def wait_claims(self, count: int, seconds: float) -> dict[str, str]:
        """Wait until at least so many units are claimed in the bucket; fails at once if a node has failed."""

        def claimed() -> dict[str, str] | None:
            status = self.status
            failed = [node for node in status.get("nodes") or [] if node.get("restarts") or node["phase"] == "Failed"]
            assert not failed, f"{self.namespace}/{self.name}: {summary(status)}"
            return claims if len(claims := self.claims()) >= count else None

        return until(claimed, f"{count} claims", seconds, lambda: (self.claims(), summary(self.status)))

    def _labels(self, pool: str | None = None) -> str:
        return f"gradientmail.io/run={self.name}" + (f",gradientmail.io/pool={pool}" if pool else "")


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a status; empty if it is not there."""
    return next((item for item in status.get("conditions") or [] if item["type"] == kind), {})


def is_running(pod: Object) -> bool:
    """Whether a pod's trainer runs and nobody has asked it to go."""
    states = {item["name"]: item["state"] for item in pod["status"].get("containerStatuses") or []}
    return "running" in states.get("trainer", {}) and "deletionTimestamp" not in pod["metadata"]


def summary(status: Mapping[str, Any]) -> str:
    """Return what a person would look at first."""
    true = [
        f"{item['type']} ({item['reason']}: {item['message']})"
        for item in status.get("conditions") or []
        if item["status"] == "True"
    ]
    nodes = [f"{node['name']} {node['phase']} {node.get('message', '')}".strip() for node in status.get("nodes") or []]
    return f"{status.get('phase')}, units {status.get('units')}, {true}, {nodes}"


def check_final_counts(run: Run, killed: Collection[str] = ()) -> None:
    """The status of an ended run agrees with the bucket, unit by unit and learner by learner.

    Of `killed` pods, which had no time for a last word, the status may know too little, never too much.
    """
    status, claims, receipts = run.status, run.claims(), run.receipts()
    units, owned = status["units"], Counter(claims.values())
    trained = Counter(claims[unit] for unit in receipts)
    assert units["claimed"] == len(claims) == units["total"]
    assert units["consumed"] + units["lost"] == units["total"]
    unheard = sum(trained[pod] for pod in killed)
    assert len(receipts) - unheard <= units["consumed"] <= len(receipts), (units, len(receipts), unheard)
    for learner in status["learners"]:
        pod = learner.get("pod")
        if pod in killed:
            assert learner["claimed"] <= owned[pod], learner
            assert learner["consumed"] <= trained[pod], learner
        elif pod:
            assert (learner["claimed"], learner["consumed"]) == (owned[pod], trained[pod]), learner
