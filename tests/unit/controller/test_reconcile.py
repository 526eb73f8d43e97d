"""What a reconcile asks of an API server that does not do as it is told; the rest is for tests/cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gradientrun.cluster import JOBS, RUNS, Cluster
from gradientrun.logs import ABOUT
from gradientrun.metrics import Metrics
from gradientrun.progress import Progress, Target
from gradientrun.reconcile import Reconciler, targets, unexplained_deletions
from gradientrun.runs import Manifest
from gradientrun.store import Store
from gradientrun.workqueue import Later
from tests.unit.controller.api_server import ApiServer, against
from tests.unit.controller.manifests import a_run, at, job_manifest, observed, pod_manifest, run_manifest, running

KEY = ("team", "first")
STATUS = "PATCH /apis/gradientmail.io/v1alpha1/namespaces/team/gradientruns/first/status"
CONFIG_MAPS_POST = "POST /api/v1/namespaces/team/configmaps"
JOBS_POST = "POST /apis/batch/v1/namespaces/team/jobs"
EVENTS_POST = "POST /api/v1/namespaces/team/events"
MADE = (201, {"metadata": {"uid": "made", "name": "made", "namespace": "team"}})

DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "message": "evicted"}]}


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([job_manifest(), pod_manifest(deleted=60, **running())], ["pod-fast-0-aaaaa"]),
        ([job_manifest(), pod_manifest(**running())], []),
        ([job_manifest(), pod_manifest(deleted=60, **running() | DISRUPTED)], []),
        ([job_manifest(suspend=True), pod_manifest(deleted=60, **running())], []),
        ([job_manifest(replicas=1), pod_manifest("fast-1", deleted=60, **running())], []),
        ([job_manifest(attempt=2), pod_manifest(attempt=2, deleted=60, **running())], []),
        ([pod_manifest(deleted=60, **running())], []),
    ],
)
def test_which_deletions_nobody_has_asked_for(children: list[Manifest], expected: list[str]) -> None:
    run = a_run()
    assert list(unexplained_deletions(run, observed(run, *children))) == expected


def test_a_node_is_asked_under_its_own_name() -> None:
    run = a_run()
    seen = observed(run, pod_manifest(**running()), pod_manifest("slow-0", **running()))
    assert targets(run, seen, {"first-fast-0-aaaaa"}) == {
        "first-fast-0-aaaaa": Target("10.0.0.1", {"namespace": "team", "run": "first", "node": "fast-0"})
    }


def reconciled(
    answers: dict[str, Any], scenario: Callable[[Reconciler, Store], Awaitable[Any]]
) -> tuple[Any, ApiServer]:
    """What comes of a scenario with one run in the store, and what the API server was asked."""
    written = run_manifest()
    written["metadata"]["resourceVersion"] = "101"
    server = ApiServer({STATUS: (200, written), CONFIG_MAPS_POST: MADE, JOBS_POST: MADE, EVENTS_POST: MADE} | answers)

    async def prepared(cluster: Cluster) -> Any:
        store = Store()
        store.put(RUNS, run_manifest())
        async with Progress() as progress:
            return await scenario(Reconciler(cluster, store, progress, Metrics(), lambda: at(0)), store)

    return against(server, prepared), server


def forbidden(words: str) -> tuple[int, Manifest]:
    return 403, {"message": words}


def told(server: ApiServer) -> list[str]:
    """Messages of the condition Stalled, as they were written one after the other."""
    statuses = [asked.body["status"] for asked in server.asked if asked.path.endswith("/status")]
    return [item["message"] for status in statuses for item in status["conditions"] if item["type"] == "Stalled"]


def test_no_job_is_created_before_its_config_map() -> None:
    async def once(reconciler: Reconciler, _: Store) -> float | None:
        return await reconciler.reconcile(KEY)

    _, server = reconciled({CONFIG_MAPS_POST: forbidden("exceeded quota")}, once)
    assert CONFIG_MAPS_POST in server.requests
    assert JOBS_POST not in server.requests


def test_a_refusal_whose_words_change_each_time_is_no_reason_to_hurry() -> None:
    async def thrice(reconciler: Reconciler, _: Store) -> list[float | None]:
        return [await reconciler.reconcile(KEY) for _ in range(3)]

    words = [forbidden(f"webhook timed out at {second}") for second in range(100)]
    waits, server = reconciled({CONFIG_MAPS_POST: words}, thrice)
    assert waits == [0.2, 10, 10]
    assert told(server)[:3] == [
        "nothing keeps a node from running",
        "the run: webhook timed out at 0",
        "the run: webhook timed out at 1",
    ]


def test_what_has_happened_is_told_even_if_the_next_step_fails() -> None:
    async def fails(reconciler: Reconciler, _: Store) -> float | None:
        with pytest.raises(Later) as caught:
            await reconciler.reconcile(KEY)
        return caught.value.seconds

    seconds, server = reconciled({JOBS_POST: (503, {"message": "etcd is slow"})}, fails)
    assert seconds is None
    assert [asked.body["reason"] for asked in server.asked if asked.path.endswith("/events")] == ["Accepted"]


def test_a_child_that_goes_while_it_is_looked_at_is_tried_again() -> None:
    async def fails(reconciler: Reconciler, _: Store) -> float | None:
        with pytest.raises(Later) as caught:
            await reconciler.reconcile(KEY)
        return caught.value.seconds

    assert reconciled({CONFIG_MAPS_POST: (409, {"message": "already exists"})}, fails)[0] == 0.2


def test_nothing_is_remembered_of_an_earlier_run_of_the_same_name() -> None:
    async def scenario(reconciler: Reconciler, store: Store) -> None:
        await reconciler.reconcile(KEY)
        another = run_manifest()
        another["metadata"] |= {"uid": "another", "resourceVersion": "900"}
        store.put(RUNS, another)
        store.remove(RUNS, run_manifest())
        await reconciler.reconcile(KEY)

    _, server = reconciled({CONFIG_MAPS_POST: forbidden("no")}, scenario)
    assert told(server) == ["nothing keeps a node from running"] * 2


@pytest.mark.parametrize(("answer", "marked"), [(200, True), (409, False), (404, False)])
def test_a_job_counts_as_being_deleted_only_once_its_deletion_was_taken(answer: int, marked: bool) -> None:
    path = "/apis/batch/v1/namespaces/team/jobs/first-more-1"

    async def scenario(reconciler: Reconciler, store: Store) -> bool:
        store.put(JOBS, job_manifest("more"))
        await reconciler.reconcile(KEY)
        (job,) = [job for job in store.children(JOBS, KEY) if job["metadata"]["name"] == "first-more-1"]
        return "deletionTimestamp" in job["metadata"]

    assert reconciled({f"DELETE {path}": (answer, {})}, scenario)[0] is marked


def test_lines_logged_while_a_run_is_reconciled_name_it() -> None:
    async def once(reconciler: Reconciler, _: Store) -> object:
        before = ABOUT.get()
        await reconciler.reconcile(KEY)
        return before, ABOUT.get()

    assert reconciled({}, once)[0] == (None, ("team", "first"))
