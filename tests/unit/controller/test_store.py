"""What is known of the cluster, from watches that may miss things and lists that set them right."""

from __future__ import annotations

from typing import Any

import pytest

from gradientrun.cluster import JOBS, PODS, RUNS
from gradientrun.observed import read_pod
from gradientrun.runs import Manifest
from gradientrun.store import Store, slim
from tests.unit.controller.manifests import UID, ended, job_manifest, last_words, pod_manifest, run_manifest, running

KEY = ("team", "first")


def at_version(manifest: Manifest, version: int, **status: Any) -> Manifest:
    return manifest | {
        "metadata": manifest["metadata"] | {"resourceVersion": str(version)},
        "status": manifest.get("status", {}) | status,
    }


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_run_and_its_children_are_found_by_its_name(store: Store) -> None:
    assert store.put(RUNS, run_manifest()) == KEY
    assert store.put(JOBS, job_manifest()) == KEY
    assert store.put(PODS, pod_manifest()) == KEY
    found = store.run(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == UID
    assert [job["metadata"]["name"] for job in store.children(JOBS, KEY)] == ["first-fast-1"]
    assert [pod["metadata"]["name"] for pod in store.children(PODS, KEY)] == ["first-fast-0-aaaaa"]
    assert store.known() == [KEY]


def test_an_older_word_is_passed_over_and_the_same_one_is_no_news(store: Store) -> None:
    store.put(PODS, at_version(pod_manifest(), 7, phase="Running"))
    assert store.put(PODS, at_version(pod_manifest(), 6, phase="Pending")) is None
    assert store.put(PODS, at_version(pod_manifest(), 7, phase="Running")) is None
    assert store.children(PODS, KEY)[0]["status"]["phase"] == "Running"
    assert store.put(PODS, at_version(pod_manifest(), 10, phase="Failed")) == KEY


def test_what_is_deleted_is_gone_and_a_late_word_does_not_bring_it_back(store: Store) -> None:
    store.put(PODS, pod_manifest())
    assert store.remove(PODS, pod_manifest()) == KEY
    assert store.put(PODS, at_version(pod_manifest(), 999)) is None
    assert store.children(PODS, KEY) == []


def test_the_last_words_of_a_pod_that_is_gone_are_kept_until_they_are_written_down(store: Store) -> None:
    store.put(PODS, pod_manifest(**running()))
    last = at_version(pod_manifest(**ended(143, last_words(5, 4))), 9)
    assert store.remove(PODS, last) == KEY, "the end of the trainer and of the pod are told as one"
    (pod,) = store.children(PODS, KEY)
    assert read_pod(pod).final is not None
    assert not store.forget(KEY, {"another"})
    assert store.forget(KEY, {"pod-fast-0-aaaaa"})
    assert not store.forget(KEY)
    assert store.children(PODS, KEY) == []


def test_a_pod_that_is_gone_without_an_end_leaves_nothing(store: Store) -> None:
    store.put(PODS, pod_manifest(**running()))
    store.remove(PODS, pod_manifest(**running()))
    assert store.children(PODS, KEY) == []


def test_a_run_made_anew_under_its_name_replaces_the_old_one_though_its_end_is_told_late(store: Store) -> None:
    store.put(RUNS, run_manifest())
    new = run_manifest()
    new["metadata"]["uid"] = "new"
    store.put(RUNS, new)
    store.remove(RUNS, run_manifest())
    found = store.run(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_a_list_drops_what_a_watch_has_not_told_to_be_gone(store: Store) -> None:
    store.put(PODS, at_version(pod_manifest("fast-0"), 10))
    store.put(PODS, at_version(pod_manifest("fast-1"), 11))
    store.expect_list(PODS)
    assert store.replace(PODS, None, [at_version(pod_manifest("fast-1"), 11)], "20", now=0) == {KEY}
    assert [pod["metadata"]["name"] for pod in store.children(PODS, KEY)] == ["first-fast-1-aaaaa"]


def test_a_list_of_one_namespace_leaves_the_others_alone(store: Store) -> None:
    store.put(PODS, at_version(pod_manifest(), 10))
    assert store.replace(PODS, "other", [], "20", now=0) == set()
    assert len(store.children(PODS, KEY)) == 1


def test_what_came_after_the_list_was_taken_stays(store: Store) -> None:
    store.expect_list(PODS)
    store.put(PODS, at_version(pod_manifest(), 21))
    assert store.replace(PODS, None, [], "20", now=0) == set()
    assert len(store.children(PODS, KEY)) == 1


def test_what_was_deleted_after_the_list_was_taken_stays_deleted(store: Store) -> None:
    store.put(PODS, at_version(pod_manifest(), 10))
    store.expect_list(PODS)
    store.remove(PODS, at_version(pod_manifest(), 21))
    assert store.replace(PODS, None, [at_version(pod_manifest(), 10)], "20", now=0) == set()
    assert store.children(PODS, KEY) == []


def test_a_list_that_agrees_changes_nothing(store: Store) -> None:
    store.put(PODS, at_version(pod_manifest(), 10))
    assert store.replace(PODS, None, [at_version(pod_manifest(), 10)], "20", now=0) == set()
    assert store.overdue(before=1e9) == []


def test_a_watch_that_never_delivers_what_a_list_has_shown_is_overdue(store: Store) -> None:
    store.replace(PODS, None, [at_version(pod_manifest(), 10)], "20", now=100.0)
    assert store.overdue(before=100.0) == []
    assert store.overdue(before=100.5) == [PODS]
    store.put(PODS, at_version(pod_manifest(), 10))
    assert store.overdue(before=1e9) == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_watch_that_catches_up_owes_nothing(store: Store, deleted: bool) -> None:
    store.replace(PODS, None, [at_version(pod_manifest(), 10)], "20", now=0)
    tell = store.remove if deleted else store.put
    tell(PODS, at_version(pod_manifest(), 12))
    assert store.overdue(before=1e9) == []


def test_an_answer_to_a_request_is_not_the_watchs_word(store: Store) -> None:
    store.replace(RUNS, None, [at_version(run_manifest(), 10)], "20", now=0)
    store.put(RUNS, at_version(run_manifest(), 21), watched=False)
    assert store.overdue(before=1e9) == [RUNS]


def test_only_what_is_read_is_kept() -> None:
    pod = pod_manifest(**running())
    pod["metadata"] |= {"managedFields": [{}], "generateName": "x"}
    pod["metadata"]["annotations"]["example.com/large"] = "x" * 1000
    pod["spec"] = {"containers": [{"name": "trainer"}]}
    kept = slim(PODS, pod)
    assert kept["spec"] == {}
    assert kept["status"] == pod["status"]
    assert sorted(kept["metadata"]) == [
        "annotations", "creationTimestamp", "labels", "name", "namespace", "ownerReferences", "resourceVersion", "uid",
    ]  # fmt: skip
    assert kept["metadata"]["annotations"] == {"batch.kubernetes.io/job-index-failure-count": "0"}
    assert slim(RUNS, run_manifest())["spec"] == run_manifest()["spec"]
