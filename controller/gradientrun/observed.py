"""What exists of a run, as frozen views of the Jobs and Pods that the API server reports. Pure.

Reads leniently: what a newer or older Kubernetes leaves out counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from gradientmail.progress import NodeProgress
from gradientrun import names
from gradientrun.runs import Manifest, Run, read_time

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
UNSCHEDULABLE = ("Unschedulable", "SchedulerError", "SchedulingGated")
HOST_PATIENCE = timedelta(seconds=30)
"""How long after its deadline a deleted pod is still taken to be running."""
MOST_COUNTED = 10_000_000
"""More units or steps than any run has: a number above it is no count."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run, in the kubelet's words."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    exit_code: int
    reason: str
    message: str
    """The termination message, or the log's end."""
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class PodView:
    """One trainer pod: one learner."""

    name: str
    uid: str
    node: str
    """`{pool}-{index}`."""
    pool: str
    index: int
    attempt: int
    created: datetime
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    reason: str = ""
    """The pod's own reason, such as Evicted."""
    message: str = ""
    address: str = ""
    scheduled: bool = False
    unschedulable: str = ""
    """The scheduler's words, or nothing."""
    disruption: str = ""
    """Why Kubernetes takes the pod away (preemption, eviction, a lost host), or nothing."""
    started: datetime | None = None
    """When the trainer container started, if it runs or has run."""
    running: bool = False
    """Whether the trainer container runs."""
    ended: Ended | None = None
    waiting: tuple[Waiting, ...] = ()
    failures: int = 0
    """How often this node's earlier pods have failed or been taken away."""
    gone: bool = False
    """Whether it exists no more; it is kept for its last words until they are written down."""
    deadline: datetime | None = None
    """When it must be gone, if it is being deleted."""

    @property
    def over(self) -> bool:
        """Whether the trainer has ended or never will run."""
        return self.ended is not None or self.phase in ("Succeeded", "Failed")

    @property
    def succeeded(self) -> bool:
        """Whether the node found no more work to take and ended in good order."""
        return self.phase == "Succeeded" or (self.ended is not None and self.ended.exit_code == 0)

    def missing(self, now: datetime) -> bool:
        """Whether it should be gone and nobody reports that it is: its host has died or lost the network."""
        return self.deadline is not None and not self.over and now > self.deadline + HOST_PATIENCE

    def live(self, now: datetime) -> bool:
        """Whether the trainer runs, as far as anyone can tell."""
        return self.running and not self.over and not self.missing(now)

    @property
    def final(self) -> NodeProgress | None:
        """The learner's own last words, or None where it had no time for them or they make no sense."""
        return read_last_words(self.ended.message) if self.ended else None


@dataclass(frozen=True, slots=True)
class JobView:
    """One pool's Job."""

    name: str
    uid: str
    pool: str
    attempt: int
    suspended: bool = False
    queue: str = ""
    """Kueue's queue that it is in, or nothing."""
    replicas: int = 0
    active: int = 0
    """Pods that have neither ended nor are being deleted."""
    terminating: int = 0
    started: datetime | None = None
    finished: Literal["", "Complete", "Failed"] = ""
    reason: str = ""
    """Why it failed, in the Job controller's words."""
    message: str = ""
    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Warned:
    """The latest warning event about an object."""

    words: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server refuses to do for a pool or the run, in its own words."""

    who: str
    words: str


@dataclass(frozen=True, slots=True)
class Counts:
    """A learner's own counts, from its /metrics."""

    claimed: int
    consumed: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a reconcile knows about a run's children. Children of other UIDs are left out."""

    jobs: tuple[JobView, ...] = ()
    pods: tuple[PodView, ...] = ()
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """Fresh counts by pod name, of the pods that answered."""
    counted: datetime | None = None
    """When pods were last asked for their counts."""
    warnings: Mapping[str, Warned] = field(default_factory=dict)
    """Latest warning event by the UID of the object, for those that were asked about."""
    refusals: tuple[Refusal, ...] = ()
    """What the API server has refused last time."""
    ending: bool = False
    """Whether the namespace is being deleted."""

    def pods_of(self, job: JobView) -> list[PodView]:
        """Return the pods of a Job, those of a Job of the same name before it included."""
        return [pod for pod in self.pods if (pod.pool, pod.attempt) == (job.pool, job.attempt)]


def read_observed(run: Run, jobs: list[Manifest], pods: list[Manifest]) -> Observed:
    """Return the views of the run's own children among objects that carry its name."""
    return Observed(
        jobs=tuple(sorted((read_job(job) for job in jobs if _is_owned(job, run)), key=lambda job: job.name)),
        pods=tuple(sorted((read_pod(pod) for pod in pods if _is_a_jobs(pod, run)), key=_pod_order)),
    )


def _is_owned(manifest: Manifest, run: Run) -> bool:
    owners = manifest["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == run.uid for owner in owners)


def _is_a_jobs(manifest: Manifest, run: Run) -> bool:
    # A copy made with `kubectl debug --keep-labels` has the labels, and no Job for an owner.
    owners = manifest["metadata"].get("ownerReferences") or []
    return label(manifest, names.RUN_UID_LABEL) == run.uid and any(owner.get("kind") == "Job" for owner in owners)


def _pod_order(pod: PodView) -> tuple[str, int, datetime, str]:
    return pod.pool, pod.index, pod.created, pod.name


def label(manifest: Manifest, name: str, default: str = "") -> str:
    """Return an object's label."""
    return str((manifest["metadata"].get("labels") or {}).get(name, default))


def read_job(manifest: Manifest) -> JobView:
    """Return the view of a Job."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    finished = _true_condition(status, "Complete") or _true_condition(status, "Failed") or {}
    return JobView(
        name=metadata["name"],
        uid=metadata["uid"],
        pool=label(manifest, names.POOL_LABEL),
        attempt=_number(label(manifest, names.ATTEMPT_LABEL)),
        suspended=bool(spec.get("suspend")),
        queue=label(manifest, names.QUEUE_LABEL),
        replicas=int(spec.get("completions", 0)),
        active=int(status.get("active") or 0),
        terminating=int(status.get("terminating") or 0),
        started=read_time(status["startTime"]) if status.get("startTime") else None,
        finished=finished.get("type", ""),
        reason=finished.get("reason", ""),
        message=finished.get("message", ""),
        succeeded=read_indexes(status.get("completedIndexes") or ""),
        failed=read_indexes(status.get("failedIndexes") or ""),
        deleting="deletionTimestamp" in metadata,
    )


def read_indexes(text: str) -> frozenset[int]:
    """Return the indexes that a Job writes as "0,2-4"."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return frozenset(indexes)


def read_pod(manifest: Manifest) -> PodView:
    """Return the view of a trainer pod."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    pool, index = label(manifest, names.POOL_LABEL), _number(label(manifest, names.INDEX_LABEL))
    annotations = metadata.get("annotations") or {}
    state = _trainer_state(status)
    running, terminated = state.get("running"), state.get("terminated")
    begun = (running or terminated or {}).get("startedAt")
    scheduled = _condition(status, "PodScheduled")
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        node=f"{pool}-{index}",
        pool=pool,
        index=index,
        attempt=_number(label(manifest, names.ATTEMPT_LABEL)),
        created=read_time(metadata["creationTimestamp"]),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        address=status.get("podIP", ""),
        scheduled=scheduled.get("status") == "True",
        unschedulable=_unschedulable(scheduled),
        disruption=(_true_condition(status, "DisruptionTarget") or {}).get("message", ""),
        started=read_time(begun) if begun else None,
        running=running is not None,
        ended=_ended(terminated) if terminated is not None else None,
        waiting=_waiting(status),
        gone=bool(manifest.get("gone")),
        failures=_number(annotations.get(FAILURES)) + _number(annotations.get(IGNORED_FAILURES)),
        deadline=read_time(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
    )


def read_last_words(message: str) -> NodeProgress | None:
    """Return the record in a termination message, or None: any program may write one, or leave the end of a log."""
    try:
        progress = NodeProgress.from_json(message)
    except (ValueError, TypeError, RecursionError):
        return None
    sound = is_count(progress.claimed) and is_count(progress.consumed) and isinstance(progress.message, str)
    return progress if sound and (progress.step is None or is_count(progress.step)) else None


def is_count(value: object) -> bool:
    """Whether a value that somebody else wrote can be a number of units or steps."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNTED


def _trainer_state(status: Manifest) -> Manifest:
    containers = status.get("containerStatuses") or []
    mine: Manifest = next((item for item in containers if item.get("name") == names.CONTAINER), {})
    return mine.get("state") or {}


def _ended(terminated: Manifest) -> Ended:
    return Ended(
        exit_code=int(terminated.get("exitCode", -1)),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
        time=read_time(terminated["finishedAt"]) if terminated.get("finishedAt") else None,
    )


def _waiting(status: Manifest) -> tuple[Waiting, ...]:
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    states = ((item.get("name", ""), (item.get("state") or {}).get("waiting")) for item in containers)
    return tuple(
        Waiting(name, waiting.get("reason", ""), waiting.get("message", "")) for name, waiting in states if waiting
    )


def _unschedulable(scheduled: Manifest) -> str:
    if scheduled.get("status") == "False" and scheduled.get("reason") in UNSCHEDULABLE:
        return str(scheduled.get("message") or scheduled["reason"])
    return ""


def _condition(status: Manifest, kind: str) -> dict[str, Any]:
    return next((item for item in status.get("conditions") or [] if item.get("type") == kind), {})


def _true_condition(status: Manifest, kind: str) -> dict[str, Any] | None:
    condition = _condition(status, kind)
    return condition if condition.get("status") == "True" else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
