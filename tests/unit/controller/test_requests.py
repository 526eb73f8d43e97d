"""What the controller asks of the API server, and what it makes of answers that are not what one hopes for."""

from __future__ import annotations

import asyncio

import pytest
from kubernetes.aio import client

from gradientrun.build import build_config_map, build_job
from gradientrun.cluster import PODS, Cluster, Conflicting, Missing, Refused, Unavailable
from gradientrun.runs import Manifest
from tests.unit.controller.api_server import ApiServer, against
from tests.unit.controller.manifests import UID, a_run

JOBS_PATH = "/apis/batch/v1/namespaces/team/jobs"
RUN_PATH = "/apis/gradientmail.io/v1alpha1/namespaces/team/gradientruns/first"
CONFLICT = {"message": "already exists"}


def job() -> Manifest:
    run = a_run()
    return build_job(run, run.pools[0])


def test_a_child_is_created_by_post_with_our_name() -> None:
    server = ApiServer({f"POST {JOBS_PATH}": (201, {"kind": "Job"})})
    assert against(server, lambda cluster: cluster.create(job())) == {"kind": "Job"}
    asked = server.asked[0]
    assert (asked.query, asked.body) == ({"fieldManager": "gradientrun-controller"}, job())


def test_a_child_of_ours_that_is_there_already_will_do() -> None:
    path = f"{JOBS_PATH}/{job()['metadata']['name']}"
    server = ApiServer({f"POST {JOBS_PATH}": (409, CONFLICT), f"GET {path}": (200, job() | {"status": {"active": 2}})})
    assert against(server, lambda cluster: cluster.create(job()))["status"] == {"active": 2}


def test_anothers_object_of_the_same_name_is_named_and_left_alone() -> None:
    name = build_config_map(a_run())["metadata"]["name"]
    maps = "/api/v1/namespaces/team/configmaps"
    other = {"metadata": {"name": name, "ownerReferences": [{"uid": "another", "controller": True}]}}
    server = ApiServer({f"POST {maps}": (409, CONFLICT), f"GET {maps}/{name}": (200, other)})
    with pytest.raises(Refused) as caught:
        against(server, lambda cluster: cluster.create(build_config_map(a_run())))
    assert str(caught.value) == (
        f"the ConfigMap '{name}' exists and does not belong to this run: "
        "delete it if nothing needs it, or give the run another name"
    )
    assert server.requests == [f"POST {maps}", f"GET {maps}/{name}"]


def test_a_job_is_changed_only_if_it_is_the_one_that_was_seen() -> None:
    server = ApiServer({f"PATCH {JOBS_PATH}/x": [(200, {"kind": "Job"}), (409, {"message": "uid mismatch"})]})

    async def twice(cluster: Cluster) -> None:
        await cluster.patch_job(a_run(), "x", "uid-1", {"suspend": True})
        await cluster.patch_job(a_run(), "x", "uid-1", {"suspend": True})

    with pytest.raises(Conflicting):
        against(server, twice)
    assert server.asked[0].content == "application/merge-patch+json"
    assert server.asked[0].body == {"metadata": {"uid": "uid-1"}, "spec": {"suspend": True}}


def test_a_status_is_applied_whole_from_the_version_it_was_derived_from() -> None:
    server = ApiServer({f"PATCH {RUN_PATH}/status": (200, {})})
    against(server, lambda cluster: cluster.write_status(a_run(), {"phase": "Pending"}))
    asked = server.asked[0]
    assert asked.content == "application/apply-patch+yaml"
    assert asked.query == {"fieldManager": "gradientrun-controller", "force": "true"}
    assert asked.body == {
        "apiVersion": "gradientmail.io/v1alpha1",
        "kind": "GradientRun",
        "metadata": {"name": "first", "namespace": "team", "uid": UID, "resourceVersion": "100"},
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize("answer", [(404, {}), (409, {}), (200, {})])
def test_deleting_what_is_gone_or_another_by_now_is_done(answer: tuple[int, Manifest]) -> None:
    server = ApiServer({f"DELETE {JOBS_PATH}/x": answer})
    against(server, lambda cluster: cluster.delete("batch/v1/jobs", "team", "x", "uid-1"))
    assert server.asked[0].body == {"propagationPolicy": "Background", "preconditions": {"uid": "uid-1"}}


def test_lists_are_asked_page_by_page() -> None:
    pages = [
        (200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"n": 1}, {"n": 2}]}),
        (200, {"metadata": {"resourceVersion": "9"}, "items": [{"n": 3}]}),
    ]
    server = ApiServer({"GET /api/v1/pods": pages})
    listed = against(server, lambda cluster: cluster.list_watched(PODS, None, lambda item: {"n": -item["n"]}))
    assert (listed.items, listed.version) == ([{"n": -1}, {"n": -2}, {"n": -3}], "9")
    assert [asked.query for asked in server.asked] == [
        {"limit": "100", "labelSelector": "gradientmail.io/run"},
        {"limit": "100", "labelSelector": "gradientmail.io/run", "continue": "more"},
    ]


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        ((201, {}), False),
        ((403, {"message": "exceeded quota"}), False),
        ((403, {"message": "being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}), True),
        ((404, {"message": "no such namespace"}), False),
    ],
)
def test_whether_a_namespace_is_being_deleted_is_found_out_by_creating_nothing(
    answer: tuple[int, Manifest], ending: bool
) -> None:
    server = ApiServer({"POST /api/v1/namespaces/team/configmaps": answer})
    assert against(server, lambda cluster: cluster.is_ending("team")) is ending
    assert server.asked[0].query == {"fieldManager": "gradientrun-controller", "dryRun": "All"}


def test_whether_the_resource_is_served() -> None:
    assert against(ApiServer({"GET /apis/gradientmail.io/v1alpha1": (200, {})}), lambda cluster: cluster.serves_runs())
    assert not against(ApiServer({}), lambda cluster: cluster.serves_runs())


def test_an_unreachable_api_server_is_something_to_try_again() -> None:
    async def scenario() -> None:
        cluster = Cluster(client.Configuration(host="http://127.0.0.1:9"))
        try:
            await cluster.serves_runs()
        finally:
            await cluster.close()

    with pytest.raises(Unavailable, match="the API server does not answer: "):
        asyncio.run(scenario())


def test_what_is_missing_is_told_apart() -> None:
    with pytest.raises(Missing):
        against(ApiServer({}), lambda cluster: cluster.write_status(a_run(), {}))
