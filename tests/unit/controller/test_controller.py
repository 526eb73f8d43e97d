"""The controller's start and its health: what it insists on, and what it takes for trouble."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.aio import client

from gradientrun import controller as module
from gradientrun.cluster import PODS, RUNS, Cluster, Unavailable
from gradientrun.controller import Controller, Unprepared
from gradientrun.metrics import Metrics
from gradientrun.progress import Progress
from gradientrun.reconcile import Reconciler
from gradientrun.settings import Settings
from gradientrun.store import Store
from tests.unit.controller.api_server import ApiServer, against
from tests.unit.controller.manifests import pod_manifest, run_manifest

DISCOVERY = "GET /apis/gradientmail.io/v1alpha1"
REVIEWS = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
EMPTY = (200, {"metadata": {"resourceVersion": "9"}, "items": []})
LISTS = {
    "GET /apis/gradientmail.io/v1alpha1/gradientruns": EMPTY,
    "GET /apis/batch/v1/jobs": EMPTY,
    "GET /api/v1/pods": EMPTY,
}
ALLOWED, DENIED = (201, {"status": {"allowed": True}}), (201, {"status": {"allowed": False}})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_controller(cluster: Cluster, settings: Settings | None = None, clock: Clock | None = None) -> Controller:
    store = Store()
    reconciler = Reconciler(cluster, store, Progress(), Metrics(), lambda: datetime.now(UTC))
    return Controller(cluster, store, reconciler, settings or Settings(), clock or Clock())


def test_it_is_ready_once_everything_has_been_listed() -> None:
    async def scenario(cluster: Cluster) -> tuple[bool, bool]:
        controller = a_controller(cluster)
        before = controller.ready
        await controller.prepare()
        return before, controller.ready

    server = ApiServer({DISCOVERY: (200, {}), REVIEWS: ALLOWED, **LISTS})
    assert against(server, scenario) == (False, True)


def prepared(answers: dict[str, Any], settings: Settings | None = None) -> ApiServer:
    server = ApiServer(answers)
    against(server, lambda cluster: a_controller(cluster, settings).prepare())
    return server


def test_without_the_resource_it_says_what_to_install() -> None:
    with pytest.raises(Unprepared) as caught:
        prepared({})
    assert str(caught.value) == (
        "the cluster does not know GradientRuns: install the CustomResourceDefinition, "
        "with the chart (crds.enabled) or by kubectl apply"
    )


def test_rights_that_are_missing_are_named() -> None:
    with pytest.raises(Unprepared) as caught:
        prepared({DISCOVERY: (200, {}), REVIEWS: DENIED, **LISTS}, Settings(namespaces=("a", "b")))
    assert str(caught.value) == (
        "the controller may not create configmaps, create events, create jobs.batch, "
        "delete gradientruns.gradientmail.io, delete jobs.batch, get configmaps, get gradientruns.gradientmail.io, "
        "get jobs.batch, list events, list gradientruns.gradientmail.io, list jobs.batch, list pods, patch events, "
        "patch gradientruns.gradientmail.io/status, patch jobs.batch, watch gradientruns.gradientmail.io, "
        "watch jobs.batch, watch pods in a, b: grant it these rights, as the chart's roles do"
    )


def test_rights_are_asked_for_in_each_namespace_served_and_nowhere_else() -> None:
    namespaced = {
        f"GET {path}": EMPTY
        for name in ("a", "b")
        for path in (
            f"/apis/gradientmail.io/v1alpha1/namespaces/{name}/gradientruns",
            f"/apis/batch/v1/namespaces/{name}/jobs",
            f"/api/v1/namespaces/{name}/pods",
        )
    }
    server = prepared({DISCOVERY: (200, {}), REVIEWS: ALLOWED, **namespaced}, Settings(namespaces=("a", "b")))
    reviews = [asked.body["spec"]["resourceAttributes"]["namespace"] for asked in server.asked if asked.verb == "POST"]
    assert sorted(reviews) == ["a"] * 18 + ["b"] * 18


def test_it_waits_for_an_api_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    answers: dict[str, Any] = {DISCOVERY: [(503, {}), (503, {}), (200, {})], REVIEWS: ALLOWED, **LISTS}
    assert prepared(answers).requests.count("GET /apis/gradientmail.io/v1alpha1") == 3


def with_controller(scenario: Any) -> Any:
    async def prepare(cluster: Cluster) -> Any:
        clock = Clock()
        controller = a_controller(cluster, clock=clock)
        return await scenario(controller, clock)

    return against(ApiServer({}), prepare)


def test_a_run_that_waits_unhandled_is_trouble() -> None:
    async def scenario(controller: Controller, clock: Clock) -> list[list[str]]:
        controller.seen(RUNS, "ADDED", run_manifest())
        at_once = controller.troubles()
        clock.now += 301
        return [at_once, controller.troubles()]

    assert with_controller(scenario) == [[], ["a run has waited for 301 s to be reconciled"]]


def test_runs_that_wait_because_the_api_server_is_away_are_none() -> None:
    async def scenario() -> list[str]:
        clock, cluster = Clock(), Cluster(client.Configuration(host="http://127.0.0.1:9"))
        try:
            controller = a_controller(cluster, clock=clock)
            controller.seen(RUNS, "ADDED", run_manifest())
            clock.now += 301
            with pytest.raises(Unavailable):
                await cluster.serves_runs()
            return controller.troubles()
        finally:
            await cluster.close()

    assert asyncio.run(scenario()) == []


def test_a_watch_that_does_not_deliver_what_a_list_has_shown_is_trouble() -> None:
    listed = LISTS | {"GET /api/v1/pods": (200, {"metadata": {"resourceVersion": "200"}, "items": [pod_manifest()]})}

    async def scenario(cluster: Cluster) -> list[list[str]]:
        clock = Clock()
        controller = a_controller(cluster, clock=clock)
        await controller.prepare()
        told = [controller.troubles()]
        clock.now += 61
        told.append(controller.troubles())
        controller.seen(PODS, None, pod_manifest())
        return [*told, controller.troubles()]

    told = against(ApiServer({DISCOVERY: (200, {}), REVIEWS: ALLOWED, **listed}), scenario)
    assert told == [[], ["the watch of v1/pods does not deliver what a list has shown"], []]


def test_a_watch_that_starts_over_has_everything_listed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELIST_SECONDS", 0.0)

    async def scenario(cluster: Cluster) -> int:
        clock = Clock()
        controller = a_controller(cluster, clock=clock)
        await controller.prepare()
        lists = server.requests.count("GET /api/v1/pods")
        work = asyncio.create_task(controller.work())
        clock.now += 61
        controller.seen(PODS, None, pod_manifest())
        while server.requests.count("GET /api/v1/pods") == lists:
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return lists

    server = ApiServer({DISCOVERY: (200, {}), REVIEWS: ALLOWED, **LISTS})
    assert against(server, scenario) == 1
