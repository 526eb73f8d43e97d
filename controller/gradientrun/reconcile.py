"""One idempotent reconcile per run: observe, derive the status and write it, plan, act.

Assumes that at most one reconcile of a run is under way here; that another controller does the
same elsewhere by mistake does no harm: names are the same, children are created once, and a
status written from old facts is refused by the API server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gradientrun.cluster import (
    BY_KIND,
    JOBS,
    PODS,
    RUNS,
    Cluster,
    ClusterError,
    Conflicting,
    Ending,
    Missing,
    Refused,
    Unavailable,
)
from gradientrun.events import Events
from gradientrun.logs import ABOUT
from gradientrun.metrics import Metrics
from gradientrun.names import POOL_LABEL
from gradientrun.observed import Counts, Observed, Refusal, Warned, label, read_observed
from gradientrun.plan import (
    PROGRESS_SECONDS,
    Action,
    Create,
    DeleteJob,
    DeleteRun,
    Plan,
    ScaleJob,
    SuspendJob,
    asked,
    plan,
)
from gradientrun.progress import Progress, Target
from gradientrun.runs import Manifest, Run, is_recent, read_run, read_time, write_time
from gradientrun.stalls import puzzles
from gradientrun.status import derive_status
from gradientrun.store import Key, Store
from gradientrun.transitions import transitions
from gradientrun.workqueue import Later

logger = logging.getLogger(__name__)

CONFLICT_SECONDS = 0.2
REFUSED_SECONDS = 30.0
"""How soon a refused action is tried again: a person has to do something first."""
WARNINGS_EVERY = timedelta(seconds=30)


@dataclass(slots=True)
class _Memory:
    """What is remembered of a run between two reconciles; all of it can be found out again."""

    uid: str
    counts: dict[str, Counts] = field(default_factory=dict)
    counted: datetime | None = None
    warnings: dict[str, Warned] = field(default_factory=dict)
    warned: datetime | None = None
    puzzles: frozenset[str] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    ending: bool = False
    deletions: frozenset[str] = frozenset()
    """UIDs of deleted pods for which it has been asked whether the namespace is being deleted."""


class Reconciler:
    """Brings runs to where their specs want them. `clock` gives the time, aware of its zone."""

    def __init__(
        self, cluster: Cluster, store: Store, progress: Progress, metrics: Metrics, clock: Callable[[], datetime]
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._progress = progress
        self._metrics = metrics
        self._clock = clock
        self._events = Events(cluster)
        self._memories: dict[Key, _Memory] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one run once. Returns in how many seconds to look at it again, or None. Raises Later."""
        ABOUT.set(key)
        manifest = self._store.run(key)
        if manifest is None:
            self._memories.pop(key, None)
            self._store.forget(key)
            return None
        with self._metrics.reconcile_seconds.time():
            try:
                return await self._reconcile(key, read_run(manifest))
            except Conflicting:
                self._count_error("conflict")
                raise Later("the run has changed meanwhile", CONFLICT_SECONDS) from None
            except Missing:
                return None
            except Unavailable as error:
                self._count_error("unavailable")
                raise Later(str(error), error.seconds) from error
            except Refused as error:
                self._count_error("refused")
                raise Later(str(error)) from error
            except Exception:
                self._count_error("fault")
                raise

    def _count_error(self, kind: str) -> None:
        self._metrics.reconcile_errors.labels(kind).inc()

    async def _reconcile(self, key: Key, run: Run) -> float | None:
        memory = self._remembered(key, run)
        observed = await self._observe(key, run, memory)
        now = self._clock()
        before, run = run, await self._with_status(run, derive_status(run, observed, now))
        forgotten = self._store.forget(key, {pod.uid for pod in observed.pods})
        decided = plan(run, observed, now)
        try:
            refusals = await self._carry_out(run, decided)
        finally:
            # The status is written: what it says anew is told now or never.
            await self._tell(before, run.status, now)
        news = {refusal.who for refusal in refusals} != {refusal.who for refusal in memory.refusals}
        memory.refusals = refusals
        return _again(decided, refusals, news=news or forgotten)

    def _remembered(self, key: Key, run: Run) -> _Memory:
        memory = self._memories.get(key)
        if memory is None or memory.uid != run.uid:
            memory = self._memories[key] = _Memory(run.uid)
        return memory

    async def _observe(self, key: Key, run: Run, memory: _Memory) -> Observed:
        jobs, pods = self._store.children(JOBS, key), self._store.children(PODS, key)
        observed = read_observed(run, jobs, pods)
        now = self._clock()
        await self._read_counts(run, observed, memory, now)
        await self._read_warnings(run, observed, memory, now)
        await self._read_ending(run, observed, memory)
        present = {pod.name for pod in observed.pods}
        counts = {name: counts for name, counts in memory.counts.items() if name in present}
        return replace(
            observed,
            counts=counts,
            counted=memory.counted,
            warnings=dict(memory.warnings),
            refusals=memory.refusals,
            ending=memory.ending,
        )

    async def _read_counts(self, run: Run, observed: Observed, memory: _Memory, now: datetime) -> None:
        wanted = set(asked(run, observed, now))
        span = timedelta(seconds=PROGRESS_SECONDS - 1)
        fresh = memory.counted is not None and is_recent(memory.counted, now, span)
        if not wanted or (fresh and wanted <= memory.counts.keys()):
            return
        memory.counts = await self._progress.counts(targets(run, observed, wanted))
        memory.counted = now

    async def _read_ending(self, run: Run, observed: Observed, memory: _Memory) -> None:
        deletions = frozenset(unexplained_deletions(run, observed))
        if not memory.ending and not deletions <= memory.deletions:
            memory.ending = await self._cluster.is_ending(run.namespace)
        memory.deletions = deletions

    async def _read_warnings(self, run: Run, observed: Observed, memory: _Memory, now: datetime) -> None:
        uids = frozenset() if run.suspended else frozenset(puzzles(observed, now))
        fresh = memory.warned is not None and is_recent(memory.warned, now, WARNINGS_EVERY)
        if fresh and uids <= memory.puzzles:
            memory.warnings = {uid: warned for uid, warned in memory.warnings.items() if uid in uids}
            return
        memory.puzzles, memory.warned = uids, now
        found = {uid: latest(await self._cluster.warnings(run.namespace, uid)) for uid in uids}
        memory.warnings = {uid: warned for uid, warned in found.items() if warned is not None}

    async def _with_status(self, run: Run, status: Manifest) -> Run:
        if status == run.status or run.deleting:
            return run
        written = await self._cluster.write_status(run, status)
        self._store.put(RUNS, written, watched=False)
        return replace(run, status=status)

    async def _tell(self, run: Run, status: Mapping[str, Any], now: datetime) -> None:
        for note in transitions(run.status, status):
            fields = {"reason": note.reason} | ({"node": note.node} if note.node else {})
            logger.info("%s/%s: %s: %s", run.namespace, run.name, note.reason, note.message, extra={"fields": fields})
            try:
                await self._events.post(run, note, now)
            except Ending:
                return
            except ClusterError as error:
                logger.warning("%s/%s: an event was not taken: %s", run.namespace, run.name, error)
                if isinstance(error, Unavailable):
                    return

    async def _carry_out(self, run: Run, decided: Plan) -> tuple[Refusal, ...]:
        refusals: list[Refusal] = []
        blocked = False
        for action in decided.actions:
            if blocked and isinstance(action, Create):
                continue
            try:
                await self._act(run, action)
            except Ending:
                continue
            except Refused as error:
                refusals.append(Refusal(_whom(action), str(error)))
                # A Job whose ConfigMap could not be created would make pods that cannot start.
                blocked |= isinstance(action, Create) and action.manifest["kind"] == "ConfigMap"
        return tuple(refusals)

    async def _act(self, run: Run, action: Action) -> None:
        match action:
            case Create(manifest):
                created = await self._cluster.create(manifest)
                if BY_KIND[manifest["kind"]] == JOBS:
                    self._store.put(JOBS, created, watched=False)
            case ScaleJob(name, uid, replicas):
                await self._patch_job(run, name, uid, {"completions": replicas, "parallelism": replicas})
            case SuspendJob(name, uid, suspend):
                await self._patch_job(run, name, uid, {"suspend": suspend})
            case DeleteJob(name, uid):
                if await self._cluster.delete(JOBS, run.namespace, name, uid):
                    self._mark_deleted(run, uid)
            case DeleteRun(uid):
                await self._cluster.delete(RUNS, run.namespace, run.name, uid)

    async def _patch_job(self, run: Run, name: str, uid: str, spec: Manifest) -> None:
        # A Job that went meanwhile, or was made anew, is seen by the watch and decided upon then.
        with suppress(Missing, Conflicting):
            self._store.put(JOBS, await self._cluster.patch_job(run, name, uid, spec), watched=False)

    def _mark_deleted(self, run: Run, uid: str) -> None:
        for job in self._store.children(JOBS, (run.namespace, run.name)):
            if job["metadata"]["uid"] == uid:
                job["metadata"].setdefault("deletionTimestamp", write_time(self._clock()))


def targets(run: Run, observed: Observed, wanted: Collection[str]) -> dict[str, Target]:
    """Return where to ask the pods of these names for their counts, and as whom they must answer."""
    common = {"namespace": run.namespace, "run": run.name}
    return {pod.name: Target(pod.address, common | {"node": pod.node}) for pod in observed.pods if pod.name in wanted}


def _whom(action: Action) -> str:
    pool = label(action.manifest, POOL_LABEL) if isinstance(action, Create) else ""
    return f"pool {pool}" if pool else "the run"


def _again(decided: Plan, refusals: tuple[Refusal, ...], *, news: bool) -> float | None:
    if news:
        return CONFLICT_SECONDS
    waits = [wait for wait in (decided.requeue_seconds, REFUSED_SECONDS if refusals else None) if wait is not None]
    return min(waits, default=None)


def unexplained_deletions(run: Run, observed: Observed) -> Iterator[str]:
    """Yield UIDs of pods that are being deleted though neither the run nor a disruption asks for it."""
    jobs = {(job.pool, job.attempt): job for job in observed.jobs}
    for pod in observed.pods:
        job = jobs.get((pod.pool, pod.attempt))
        wanted = job is not None and not (job.suspended or job.deleting) and pod.index < job.replicas
        if pod.deadline is not None and wanted and not pod.disruption and pod.attempt == run.attempt:
            yield pod.uid


def latest(events: list[Manifest]) -> Warned | None:
    """Return the latest of some events."""
    warned = [Warned(event.get("message") or "", read_time(_event_time(event))) for event in events]
    return max(warned, key=lambda item: item.time, default=None)


def _event_time(event: Manifest) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    written = series or event.get("lastTimestamp") or event.get("eventTime")
    return str(written or event["metadata"]["creationTimestamp"])
