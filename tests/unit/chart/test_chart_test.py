from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest
from kubernetes import client

from gradientrun.chart_test import HelmTestError, Runs, Sight, follow, run_test, sight

RUNS_PATH = "/apis/gradientmail.io/v1alpha1/namespaces/trials/gradientruns"
MANIFEST = {"metadata": {"generateName": "trial-test-", "namespace": "trials"}, "spec": {"suspend": True}}


def condition(name: str, value: str = "True", message: str = "") -> dict[str, str]:
    return {"type": name, "status": value, "reason": name + "Reason", "message": message}


@pytest.mark.parametrize(
    ("status", "until", "expected"),
    [
        ({}, "Complete", Sight(False, False, "the controller has not taken it up")),
        ({"phase": "Pending"}, "Complete", Sight(False, False, "Pending")),
        (
            {"phase": "Running", "units": {"total": 8, "consumed": 3}, "conditions": [condition("Running")]},
            "Complete",
            Sight(False, False, "Running, 3 of 8 units consumed; Running: RunningReason"),
        ),
        (
            {"phase": "Pending", "conditions": [condition("Stalled", message="pull access denied")]},
            "Complete",
            Sight(False, False, "Pending; Stalled: pull access denied"),
        ),
        (
            {"phase": "Suspended", "conditions": [condition("Suspended", message="as asked")]},
            "Suspended",
            Sight(True, False, "Suspended; Suspended: as asked"),
        ),
        (
            {"phase": "Suspended", "conditions": [condition("Suspended", value="False")]},
            "Suspended",
            Sight(False, False, "Suspended"),
        ),
        (
            {"phase": "Failed", "conditions": [condition("Failed", message="no node started")]},
            "Complete",
            Sight(False, True, "Failed; Failed: no node started"),
        ),
        (
            {"phase": "Succeeded", "conditions": [condition("Complete"), condition("Failed", value="False")]},
            "Complete",
            Sight(True, False, "Succeeded; Complete: CompleteReason"),
        ),
    ],
)
def test_sight(status: dict[str, Any], until: str, expected: Sight) -> None:
    assert sight(status, until) == expected


def followed(statuses: Iterable[dict[str, Any] | None], timeout_seconds: float = 60.0) -> list[str]:
    """What is said about these statuses, one a second."""
    said: list[str] = []
    seconds = count()
    looks = iter(statuses)
    follow(
        lambda: next(looks),
        "Complete",
        timeout_seconds,
        say=said.append,
        clock=lambda: float(next(seconds)),
        pause=lambda _: None,
    )
    return said


def test_follow_says_each_change_once() -> None:
    done = {"conditions": [condition("Complete")]}
    assert followed([{}, {}, {"phase": "Running"}, {"phase": "Running"}, None, done]) == [
        "the controller has not taken it up",
        "Running",
        "the API server does not answer",
        "no phase; Complete: CompleteReason",
    ]


def test_follow_ends_at_once_when_the_run_fails() -> None:
    with pytest.raises(HelmTestError, match=r"^the run failed \(Failed; Failed: out of memory\)$"):
        followed([{"phase": "Failed", "conditions": [condition("Failed", message="out of memory")]}])


def test_follow_ends_when_the_time_is_up() -> None:
    with pytest.raises(HelmTestError, match=r"^the run is not Complete after 3 s \(Pending\)$"):
        followed([{"phase": "Pending"}] * 10, timeout_seconds=3.0)


class Api:
    """A server on the loopback that gives the next of the answers to a method, and keeps the requests."""

    def __init__(self, **answers: list[tuple[int, Mapping[str, Any]]]) -> None:
        self.answers = {method: iter(given) for method, given in answers.items()}
        self.requests: list[tuple[str, str]] = []

    @contextmanager
    def runs(self) -> Iterator[Runs]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="api")
        thread.start()
        configuration = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
        try:
            with client.ApiClient(configuration) as connection:
                yield Runs(client.CustomObjectsApi(connection), "trials")
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=5.0)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()

            def _answer(self) -> None:
                api.requests.append((self.command, self.path))
                code, body = next(api.answers[self.command])
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler


CREATED = (201, {"metadata": {"name": "trial-test-abcde"}})
SUSPENDED = (200, {"status": {"phase": "Suspended", "conditions": [condition("Suspended")]}})


def test_run_is_created_followed_and_deleted() -> None:
    api = Api(POST=[CREATED], GET=[SUSPENDED], DELETE=[(200, {})])
    with api.runs() as runs:
        said = run_test(runs, MANIFEST, "Suspended", timeout_seconds=10.0)
    assert said == "The controller works. Nothing was trained: set tests.mailbox.url for a test that trains."
    assert api.requests == [
        ("POST", RUNS_PATH),
        ("GET", f"{RUNS_PATH}/trial-test-abcde"),
        ("DELETE", f"{RUNS_PATH}/trial-test-abcde"),
    ]


def test_failed_run_is_kept_and_the_message_says_where_to_look() -> None:
    failed = (200, {"status": {"phase": "Failed", "conditions": [condition("Failed", message="no such bucket")]}})
    api = Api(POST=[CREATED], GET=[failed])
    with api.runs() as runs, pytest.raises(HelmTestError) as caught:
        run_test(runs, MANIFEST, "Complete", timeout_seconds=10.0)
    assert str(caught.value) == (
        "the run failed (Failed; Failed: no such bucket). The run is kept: look with "
        "`kubectl --namespace trials describe gradientrun trial-test-abcde`, "
        "then `kubectl --namespace trials delete gradientrun trial-test-abcde`"
    )
    assert [method for method, _ in api.requests] == ["POST", "GET"]


@pytest.mark.parametrize(
    ("code", "message", "sentence"),
    [
        (
            404,
            "the server could not find the requested resource",
            "the GradientRun resource is not served, or trials is gone: install the CRD (crds.enabled)",
        ),
        (
            403,
            "cannot create resource",
            "the test's service account may not use GradientRuns in trials: cannot create resource",
        ),
        (
            422,
            "spec.nodes: Invalid value",
            "the API server refused the run made from the values under tests: spec.nodes: Invalid value",
        ),
        (500, "etcd is away", "the API server answered 500: etcd is away; try again"),
    ],
)
def test_refusals_are_explained(code: int, message: str, sentence: str) -> None:
    with Api(POST=[(code, {"message": message})]).runs() as runs, pytest.raises(HelmTestError) as caught:
        runs.create(MANIFEST)
    assert str(caught.value) == sentence


def test_a_look_survives_an_api_server_that_is_away() -> None:
    with Api(GET=[(503, {"message": "starting"}), SUSPENDED]).runs() as runs:
        assert runs.status("trial-test-abcde") is None
        assert runs.status("trial-test-abcde") == SUSPENDED[1]["status"]


def test_a_run_that_somebody_deletes_ends_the_test() -> None:
    with (
        Api(GET=[(404, {"message": "gone"})]).runs() as runs,
        pytest.raises(HelmTestError, match="was deleted before it got there"),
    ):
        runs.status("trial-test-abcde")
