"""The controller's program: `gradientrun-controller`, or `python -m gradientrun`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

import kopf

from gradientmail.exits import Exit
from gradientrun.cluster import Cluster, NotConnected, connection
from gradientrun.controller import Controller, Unprepared
from gradientrun.handlers import operator_settings, registry
from gradientrun.logs import set_up
from gradientrun.metrics import Metrics
from gradientrun.progress import Progress
from gradientrun.reconcile import Reconciler
from gradientrun.settings import Settings, read_settings
from gradientrun.store import Store
from gradientrun.web import serving

logger = logging.getLogger("gradientrun")


def main() -> None:
    """Run until SIGTERM or SIGINT. Exit code 2 for what only a person can put right."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
        set_up(settings.log_level, settings.log_format)
        asyncio.run(run(settings))
    except (ValueError, Unprepared, NotConnected, OSError) as error:
        print(f"gradientrun-controller: {error}", file=sys.stderr)
        sys.exit(Exit.CONFIGURATION)


async def run(settings: Settings) -> None:
    """Serve GradientRuns until kopf has taken a signal to stop."""
    metrics, store = Metrics(), Store()
    metrics.show(store.runs)
    cluster = Cluster(await connection(), metrics.count_request)
    try:
        async with Progress() as progress:
            reconciler = Reconciler(cluster, store, progress, metrics, lambda: datetime.now(UTC))
            controller = Controller(cluster, store, reconciler, settings)
            metrics.show_queue(controller.queued, controller.waited)
            async with serving(controller, metrics.registry, settings.metrics_port) as port:
                logger.info("serving /metrics, /livez and /readyz on port %d", port)
                await _serve(controller, settings)
    finally:
        await cluster.close()


async def _serve(controller: Controller, settings: Settings) -> None:
    await controller.prepare()
    logger.info("serving GradientRuns in %s", ", ".join(settings.namespaces) or "all namespaces")
    work = asyncio.create_task(controller.work(), name="work")
    watch = asyncio.create_task(_watch(controller, settings), name="watch")
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, watch):
            task.cancel()
        for task in (work, watch):
            with suppress(asyncio.CancelledError):
                await task


async def _watch(controller: Controller, settings: Settings) -> None:
    await kopf.operator(
        registry=registry(controller),
        settings=operator_settings(),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
    )


if __name__ == "__main__":
    main()
