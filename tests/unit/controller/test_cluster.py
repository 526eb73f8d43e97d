"""How answers of the API server are read, and which rights are asked for. Requests themselves are for tests/cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gradientrun import cluster
from gradientrun.cluster import (
    NEEDED,
    ClusterError,
    Conflicting,
    Missing,
    Permission,
    Refused,
    Unavailable,
    _answer,
    _kind,
    _path,
)
from gradientrun.reconcile import latest
from tests.unit.controller.manifests import at, text


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Refused),
        (401, Unavailable),
        (403, Refused),
        (404, Missing),
        (409, Conflicting),
        (422, Refused),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_what_an_answer_means(status: int, error: type[ClusterError]) -> None:
    with pytest.raises(error) as caught:
        _answer(status, {}, json.dumps({"message": "its own words"}).encode())
    assert str(caught.value) == "its own words"


def test_an_answer_that_says_when_to_try_again() -> None:
    with pytest.raises(Unavailable) as caught:
        _answer(429, {"Retry-After": "3"}, b"slow down")
    assert caught.value.seconds == 3.0
    assert str(caught.value) == "slow down"


def test_an_answer_without_words() -> None:
    with pytest.raises(Refused, match=r"^HTTP 403$"):
        _answer(403, {}, b"{}")
    assert _answer(200, {}, b'{"kind": "Job"}') == {"kind": "Job"}


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path", "kind"),
    [
        (cluster.PODS, None, None, "/api/v1/pods", "pods"),
        (cluster.PODS, "team", None, "/api/v1/namespaces/team/pods", "pods"),
        (cluster.JOBS, "team", "first", "/apis/batch/v1/namespaces/team/jobs/first", "jobs"),
        (cluster.RUNS, None, None, "/apis/gradientmail.io/v1alpha1/gradientruns", "gradientruns"),
    ],
)
def test_paths(resource: str, namespace: str | None, name: str | None, path: str, kind: str) -> None:
    assert _path(resource, namespace, name) == path
    assert _kind(path) == kind


def test_the_rights_that_are_needed() -> None:
    assert sorted(str(permission) for permission in NEEDED) == [
        "create configmaps", "create events", "create jobs.batch", "delete gradientruns.gradientmail.io",
        "delete jobs.batch", "get configmaps", "get gradientruns.gradientmail.io", "get jobs.batch",
        "list events", "list gradientruns.gradientmail.io", "list jobs.batch", "list pods", "patch events",
        "patch gradientruns.gradientmail.io/status", "patch jobs.batch",
        "watch gradientruns.gradientmail.io", "watch jobs.batch", "watch pods",
    ]  # fmt: skip


def test_a_right_as_an_access_review_asks_for_it() -> None:
    assert Permission("patch", cluster.RUNS, "status").attributes == {
        "verb": "patch", "group": "gradientmail.io", "resource": "gradientruns", "subresource": "status",
    }  # fmt: skip
    assert Permission("list", cluster.PODS).attributes == {
        "verb": "list", "group": "", "resource": "pods", "subresource": "",
    }  # fmt: skip


def test_the_latest_of_some_events() -> None:
    older: dict[str, Any] = {"metadata": {}, "message": "older", "lastTimestamp": text(5), "series": None}
    repeated: dict[str, Any] = {
        "metadata": {},
        "message": "repeated",
        "eventTime": text(1),
        "series": {"lastObservedTime": text(9)},
    }
    created: dict[str, Any] = {"metadata": {"creationTimestamp": text(7)}, "message": "created"}
    found = latest([older, repeated, created])
    assert found is not None
    assert (found.words, found.time) == ("repeated", at(9))
    assert latest([]) is None
