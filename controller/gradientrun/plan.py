"""What to do about a run: pure, from its status as written, what exists and the clock.

Assumes that `status` has been written before the actions are carried out. So a prefix is recorded
before a pod can use it, an end before anything is stopped, and the counts of pods before they go.
Every action may be repeated: a reconcile that died half-way is finished by the next one.

Jobs are created once and never applied again. Of an existing Job only the replicas and suspension
are ever set, and the suspension of one in a Kueue queue is Kueue's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gradientmail.run import Pool
from gradientrun.build import build_config_map, build_job, config_map_name
from gradientrun.observed import HOST_PATIENCE, JobView, Observed
from gradientrun.runs import Manifest, Run, is_recent
from gradientrun.status import gather
from gradientrun.verdict import Facts, active_deadline, finished_at, start_deadline

PROGRESS_SECONDS = 7.0
"""How often a running run's nodes are asked for their counts."""
NODES_ASKED_PER_SECOND = 10
"""In large runs, progress is read less often, so that no more nodes than this are asked in a second."""
LEAVING_SECONDS = 10.0
"""How long a pod may take to end after its trainer has, and its Job to take note."""
PENDING_SECONDS = 10.0
"""How often a run is looked at while its nodes are late."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a child, unless it is there already and the run's own."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ScaleJob:
    """Set a Job's completions and parallelism."""

    name: str
    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Suspend a Job, or let it go on."""

    name: str
    uid: str
    suspend: bool


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job and, in the background, its pods."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Delete the run, and with it all its children."""

    uid: str


Action = Create | ScaleJob | SuspendJob | DeleteJob | DeleteRun


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order, and when to look again at the latest (seconds; None: when something changes)."""

    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None


def plan(run: Run, observed: Observed, now: datetime) -> Plan:
    """Return what to do. `run.status` is the status as written."""
    if observed.ending:
        return Plan(_delete_all(observed))
    if run.deleting:
        return Plan()
    held = _held(observed, now)
    decided = _plan(run, observed, now)
    waits = [wait for wait in (decided.requeue_seconds, held.requeue_seconds) if wait is not None]
    return Plan((*decided.actions, *held.actions), min(waits, default=None))


def _delete_all(observed: Observed) -> tuple[Action, ...]:
    """Delete every Job: Kubernetes deletes a namespace's pods first, and a Job holds on to pods it cannot replace."""
    return tuple(DeleteJob(job.name, job.uid) for job in observed.jobs if not job.deleting)


def _held(observed: Observed, now: datetime) -> Plan:
    """Delete suspended Jobs that hold on to a deleted pod until it is replaced, which a suspended Job never does."""
    waits: dict[str, float] = {}
    for job in observed.jobs:
        deadlines = [pod.deadline for pod in observed.pods_of(job) if pod.over and pod.deadline]
        if job.suspended and not job.deleting and deadlines:
            waits[job.uid] = (min(deadlines) + HOST_PATIENCE - now).total_seconds()
    due = tuple(DeleteJob(job.name, job.uid) for job in observed.jobs if waits.get(job.uid, 1) <= 0)
    return Plan(due, min((wait for wait in waits.values() if wait > 0), default=None))


def _plan(run: Run, observed: Observed, now: datetime) -> Plan:
    if finished_at(run.status):
        return _after_the_end(run, observed, now)
    if run.spec is None or run.status.get("phase") == "Failed":
        return Plan()
    facts = gather(run, observed, now)
    if facts.earlier:
        return Plan(_clear_earlier(facts), _next_look(facts))
    actions = [action for pool in run.pools for action in _pool_actions(run, pool, facts)]
    return Plan((*_config_maps(run, actions, observed), *actions, *_removed_pools(facts)), _next_look(facts))


def _config_maps(run: Run, actions: Iterable[Action], observed: Observed) -> Iterator[Action]:
    """Create what new Jobs need, and anew what the kubelet misses: somebody has deleted it."""
    if any(isinstance(action, Create) for action in actions):
        yield Create(build_config_map(run))
    told = " ".join(warned.words for warned in observed.warnings.values())
    used = (config_map_name(run, run.pools[:count]) for count in range(1, len(run.pools) + 1)) if told else ()
    yield from (Create(build_config_map(run, name)) for name in used if name in told)


def _after_the_end(run: Run, observed: Observed, now: datetime) -> Plan:
    stopped = _stopped(observed, now)
    ended, ttl = finished_at(run.status), run.spec.ttl_seconds_after_finished if run.spec else None
    if ended is None or ttl is None:
        return stopped
    left = (ended + timedelta(seconds=ttl) - now).total_seconds()
    if left <= 0:
        return Plan((*stopped.actions, DeleteRun(run.uid)))
    return Plan(stopped.actions, min(left, stopped.requeue_seconds or left))


def _stopped(observed: Observed, now: datetime) -> Plan:
    stop = [job for job in observed.jobs if _must_stop(job) and _unfinished(job, observed)]
    leaving = [job for job in stop if _leaving(job, observed, now)]
    return Plan(tuple(_stop(job) for job in stop if job not in leaving), LEAVING_SECONDS if leaving else None)


def _leaving(job: JobView, observed: Observed, now: datetime) -> bool:
    """Whether a trainer of the Job has just failed: a Job that stops before it knows deletes the pod, and its log."""
    failed = [pod for pod in observed.pods_of(job) if pod.over and not pod.succeeded and pod.deadline is None]
    ends = [pod.ended.time for pod in failed if pod.ended is not None and pod.index not in job.failed]
    return any(time is not None and is_recent(time, now, timedelta(seconds=LEAVING_SECONDS)) for time in ends)


def _must_stop(job: JobView) -> bool:
    # A Job that waits in a queue would be started by Kueue one day.
    return not job.finished and not job.deleting and (bool(job.queue) or not job.suspended)


def _unfinished(job: JobView, observed: Observed) -> bool:
    """Whether a node of the Job may yet run. The Job itself learns a little later that all its pods have succeeded."""
    done = {pod.index for pod in observed.pods_of(job) if pod.succeeded}
    return bool(set(range(job.replicas)) - job.succeeded - job.failed - done)


def _stop(job: JobView) -> Action:
    # Kueue would start a suspended Job again; and to keep one would keep its quota.
    return DeleteJob(job.name, job.uid) if job.queue else SuspendJob(job.name, job.uid, suspend=True)


def _clear_earlier(facts: Facts) -> tuple[Action, ...]:
    earlier = (job for job in facts.observed.jobs if job.attempt != facts.run.attempt and not job.deleting)
    return tuple(DeleteJob(job.name, job.uid) for job in earlier)


def _removed_pools(facts: Facts) -> tuple[Action, ...]:
    names = {pool.name for pool in facts.run.pools}
    return tuple(DeleteJob(job.name, job.uid) for job in facts.jobs if job.pool not in names and not job.deleting)


def _pool_actions(run: Run, pool: Pool, facts: Facts) -> list[Action]:
    job = next((job for job in facts.jobs if job.pool == pool.name), None)
    if job is None:
        return _missing_job(run, pool, facts)
    if job.deleting:
        return []
    if pool.replicas == 0:
        return [DeleteJob(job.name, job.uid)]
    if run.suspended:
        return [_stop(job)] if _must_stop(job) else []
    return [] if job.finished else _adjusted(run, pool, job)


def _missing_job(run: Run, pool: Pool, facts: Facts) -> list[Action]:
    stopping = any(pod.pool == pool.name and not (pod.over or pod.missing(facts.now)) for pod in facts.pods)
    if run.suspended or pool.replicas == 0 or stopping:
        return []
    return [Create(build_job(run, pool))]


def _adjusted(run: Run, pool: Pool, job: JobView) -> list[Action]:
    if job.suspended and job.queue != run.queue:
        # The run has been given to a queue, or taken from it: one who waits must wait in the right place.
        return [DeleteJob(job.name, job.uid)]
    actions: list[Action] = []
    if job.replicas != pool.replicas:
        actions.append(ScaleJob(job.name, job.uid, pool.replicas))
    if job.suspended and not job.queue:
        actions.append(SuspendJob(job.name, job.uid, suspend=False))
    return actions


def _next_look(facts: Facts) -> float | None:
    waits = [_progress_seconds(facts), *_deadline_seconds(facts)]
    return max(1.0, min(wait for wait in waits if wait is not None)) if any(w is not None for w in waits) else None


def _progress_seconds(facts: Facts) -> float | None:
    live = len(facts.live)
    if live:
        every = max(PROGRESS_SECONDS, live / NODES_ASKED_PER_SECOND)
        counted = facts.observed.counted
        if counted is not None and is_recent(counted, facts.now, timedelta(seconds=every)):
            return every - (facts.now - counted).total_seconds()
        return every
    idle = facts.run.suspended or (facts.run.queue and all(job.suspended for job in facts.jobs))
    return None if idle else PENDING_SECONDS


def _deadline_seconds(facts: Facts) -> list[float]:
    gone = (pod.deadline + HOST_PATIENCE for pod in facts.observed.pods if pod.deadline and not pod.over)
    times = [time for time in (start_deadline(facts), active_deadline(facts)) if time is not None]
    return [(time - facts.now).total_seconds() for time in (*times, *gone) if time > facts.now]


def asked(run: Run, observed: Observed, now: datetime) -> tuple[str, ...]:
    """Return names of the pods to ask for their counts: those of the attempt that run."""
    if finished_at(run.status) and run.status.get("attempt") == run.attempt:
        return ()
    return tuple(pod.name for pod in gather(run, observed, now).live if pod.address)
