"""The controller's page of metrics and its probes, over HTTP."""

from __future__ import annotations

import aiohttp
import pytest

from gradientrun.cluster import RUNS, Cluster
from gradientrun.metrics import Metrics
from gradientrun.web import serving
from tests.unit.controller.api_server import ApiServer, against
from tests.unit.controller.manifests import run_manifest
from tests.unit.controller.test_controller import ALLOWED, DISCOVERY, LISTS, REVIEWS, Clock, a_controller

SILENCE_SECONDS = 1000.0


async def pages(port: int, host: str = "127.0.0.1") -> dict[str, tuple[int, str]]:
    found = {}
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/livez", "/readyz"):
            async with session.get(f"http://{host}:{port}{path}") as answer:
                found[path] = (answer.status, await answer.text())
    return found


def test_metrics_and_probes_are_served_before_and_after_the_first_lists() -> None:
    async def scenario(cluster: Cluster) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]]:
        controller, metrics = a_controller(cluster), Metrics()
        metrics.show(lambda: [run_manifest()])
        metrics.show_queue(controller.queued, controller.waited)
        async with serving(controller, metrics.registry, 0) as port:
            before = await pages(port)
            await controller.prepare()
            return before, await pages(port, "[::1]")

    before, after = against(ApiServer({DISCOVERY: (200, {}), REVIEWS: ALLOWED, **LISTS}), scenario)
    assert before["/livez"] == after["/livez"] == (200, "ok\n")
    assert before["/readyz"] == (503, "not everything that exists has been listed yet\n")
    assert after["/readyz"] == (200, "ok\n")
    for status, page in (before["/metrics"], after["/metrics"]):
        assert status == 200
        assert 'gradientrun_units{namespace="team",run="first",state="total"} 0.0' in page.splitlines()
        assert "gradientrun_queue_runs 0.0" in page.splitlines()


def test_a_run_that_waits_unhandled_shows_in_the_metrics_and_fails_the_probe() -> None:
    async def scenario(cluster: Cluster) -> dict[str, tuple[int, str]]:
        clock = Clock()
        controller, metrics = a_controller(cluster, clock=clock), Metrics()
        metrics.show_queue(controller.queued, controller.waited)
        controller.seen(RUNS, "ADDED", run_manifest())
        clock.now += SILENCE_SECONDS
        async with serving(controller, metrics.registry, 0) as port:
            return await pages(port)

    found = against(ApiServer({}), scenario)
    assert found["/livez"] == (500, "a run has waited for 1000 s to be reconciled\n")
    assert "gradientrun_queue_runs 1.0" in found["/metrics"][1].splitlines()
    assert "gradientrun_queue_wait_seconds 1000.0" in found["/metrics"][1].splitlines()


def test_a_taken_port_is_an_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = a_controller(cluster)
        async with serving(controller, Metrics().registry, 0) as port:
            with pytest.raises(OSError):
                async with serving(controller, Metrics().registry, port):
                    pass

    against(ApiServer({}), scenario)
