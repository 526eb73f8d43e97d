"""The controller apart from its watches: events in, reconciles out, and whether that works.

Health is judged by work, not by a port that answers: a watch that never delivers what a list has
shown, a run that waits unhandled, or lists that have stopped each mean that a restart would help.
An API server that does not answer does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from gradientrun.cluster import NEEDED, RUNS, WATCHED, Cluster, ClusterError
from gradientrun.reconcile import Reconciler
from gradientrun.runs import Manifest
from gradientrun.settings import Settings
from gradientrun.store import Key, Store, slim
from gradientrun.workqueue import WorkQueue

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 0.5
"""How long changes of Jobs and pods are gathered before the run is reconciled once for all of them."""
WATCH_PATIENCE_SECONDS = 60.0
QUEUE_PATIENCE_SECONDS = 300.0
RELIST_SECONDS = 5.0
FIRST_LIST_SECONDS = 60.0
"""Lists that watches begin with are not taken for a new beginning for so long after the start."""
RETRY_SECONDS = 5.0


class Unprepared(Exception):
    """The cluster is not ready for the controller: what is missing, and what to do."""


class Controller:
    """Takes what watches tell, keeps the store right, and has runs reconciled."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        reconciler: Reconciler,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._reconciler = reconciler
        self._settings = settings
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._relist = asyncio.Event()
        self._listed: float | None = None
        self._begun = clock()

    def seen(self, resource: str, kind: str | None, manifest: Manifest) -> None:
        """Take an event of a watch; `kind` is None for objects of the list that a watch begins with. Never blocks."""
        take = self._store.remove if kind == "DELETED" else self._store.put
        key = take(resource, manifest)
        if kind is None and self._clock() > self._begun + FIRST_LIST_SECONDS:
            # The watch has started over: what was deleted in between was never told.
            self._relist.set()
        if key is not None:
            self._queue.add(key, 0.0 if resource == RUNS else SETTLE_SECONDS)

    async def prepare(self) -> None:
        """Wait for the API server; check what it serves and allows; learn what exists. Raises Unprepared."""
        await self._until_answered(self._check)
        await self._until_answered(self._list_all)

    async def _until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await ask()
            except ClusterError as error:
                logger.warning("starting: %s; trying again in %.0f s", error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)

    async def _check(self) -> None:
        if not await self._cluster.serves_runs():
            raise Unprepared(
                "the cluster does not know GradientRuns: install the CustomResourceDefinition, "
                "with the chart (crds.enabled) or by kubectl apply"
            )
        scopes = self._settings.namespaces or (None,)
        asked = [(permission, scope) for permission in NEEDED for scope in scopes]
        answers = await asyncio.gather(*(self._cluster.allows(*item) for item in asked))
        missing = [item for item, allowed in zip(asked, answers, strict=True) if not allowed]
        if missing:
            rights = ", ".join(sorted({str(permission) for permission, _ in missing}))
            where = ", ".join(sorted({scope or "all namespaces" for _, scope in missing}))
            raise Unprepared(
                f"the controller may not {rights} in {where}: grant it these rights, as the chart's roles do"
            )

    async def work(self) -> None:
        """Reconcile runs as they need it, and list everything anew from time to time. Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.serve(self._reconciler.reconcile, self._settings.workers), name="reconcile")
            group.create_task(self._resync(), name="resync")

    async def _resync(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.resync_seconds):
                    await self._relist.wait()
                await asyncio.sleep(RELIST_SECONDS)
            except TimeoutError:
                pass
            self._relist.clear()
            try:
                await self._list_all()
            except ClusterError as error:
                logger.warning("listing everything anew: %s", error)
                self._relist.set()
            for key in self._store.known():
                self._queue.add(key)

    async def _list_all(self) -> None:
        for resource in WATCHED:
            for namespace in self._settings.namespaces or (None,):
                self._store.expect_list(resource)
                listed = await self._cluster.list_watched(resource, namespace, partial(slim, resource))
                changed = self._store.replace(resource, namespace, listed.items, listed.version, self._clock())
                for key in changed:
                    self._queue.add(key)
        self._listed = self._clock()

    @property
    def ready(self) -> bool:
        """Whether everything that exists has been listed once."""
        return self._listed is not None

    def queued(self) -> int:
        """Return how many runs are being reconciled or have a time set for it."""
        return len(self._queue)

    def waited(self) -> float:
        """Return for how many seconds the run longest due, or longest in work, has been so."""
        return max(0.0, self._queue.waited())

    def troubles(self) -> list[str]:
        """Return what a restart would help against; nothing if all is well."""
        found = [
            f"the watch of {resource} does not deliver what a list has shown"
            for resource in self._store.overdue(self._clock() - WATCH_PATIENCE_SECONDS)
        ]
        waited = self.waited()
        # An API server that is away makes runs wait as well: each request takes its time to fail.
        if waited > QUEUE_PATIENCE_SECONDS and self._cluster.reachable:
            found.append(f"a run has waited for {waited:.0f} s to be reconciled")
        return found
