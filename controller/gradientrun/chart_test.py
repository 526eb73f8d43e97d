"""What `helm test` runs in the cluster: create one GradientRun, follow it until it is where it should be, delete it.

Assumes a service account that may create, get and delete GradientRuns in the run's namespace. A run that did not get
there is kept, so that a person can look at it. Every failure is one sentence on standard error and exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from gradientmail.run import GROUP, PLURAL, VERSION

MANIFEST = "GRADIENTRUN_TEST_MANIFEST"
REQUEST_SECONDS = 10.0
POLL_SECONDS = 1.0
TERMINATED = 143

Status = Mapping[str, Any]


class HelmTestError(Exception):
    """The cluster, the chart's values or the controller are not as the test needs them; the message says what to do."""


@dataclass(frozen=True)
class Sight:
    """What one look at a run's status told: whether it got there, whether it failed, and a line to show."""

    there: bool
    failed: bool
    line: str


UNANSWERED = Sight(there=False, failed=False, line="the API server does not answer")


def sight(status: Status, until: str) -> Sight:
    """Judge a run's status by its conditions; `until` is the type of the condition that is waited for."""
    holding = {entry["type"]: entry for entry in status.get("conditions", ()) if entry.get("status") == "True"}
    reasons = [f"{name}: {entry.get('message') or entry.get('reason', '')}" for name, entry in sorted(holding.items())]
    return Sight(
        there=until in holding,
        failed="Failed" in holding and until != "Failed",
        line="; ".join([_summary(status), *reasons]),
    )


def _summary(status: Status) -> str:
    if not status:
        return "the controller has not taken it up"
    units = status.get("units", {})
    counted = f", {units.get('consumed', 0)} of {units['total']} units consumed" if "total" in units else ""
    return f"{status.get('phase', 'no phase')}{counted}"


def follow(
    look: Callable[[], Status | None],
    until: str,
    timeout_seconds: float,
    *,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Look at a run until condition `until` holds, saying what changes; blocks for at most `timeout_seconds`.

    A look is None while the API server does not answer. Raises HelmTestError when the run fails or the time is up.
    """
    deadline = clock() + timeout_seconds
    shown = ""
    while True:
        status = look()
        now = UNANSWERED if status is None else sight(status, until)
        if now.line != shown:
            say(now.line)
            shown = now.line
        if now.there:
            return
        if now.failed:
            raise HelmTestError(f"the run failed ({now.line})")
        if clock() >= deadline:
            raise HelmTestError(f"the run is not {until} after {timeout_seconds:g} s ({now.line})")
        pause(POLL_SECONDS)


@dataclass(frozen=True)
class Runs:
    """GradientRuns of one namespace, through the API server. Every request ends within 10 s."""

    api: client.CustomObjectsApi
    namespace: str

    def create(self, manifest: Mapping[str, Any]) -> str:
        """Create a run and return its name; raises HelmTestError with what to put right."""
        try:
            created: Any = self.api.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, dict(manifest), _request_timeout=REQUEST_SECONDS
            )
        except client.ApiException as error:
            raise HelmTestError(explained(error, self.namespace)) from None
        except HTTPError as error:
            raise HelmTestError(
                f"the API server does not answer ({error}); check the pod's network and try again"
            ) from None
        return str(created["metadata"]["name"])

    def status(self, name: str) -> Status | None:
        """Read a run's status; empty before the controller writes one, None while the API server does not answer."""
        try:
            run: Any = self.api.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=REQUEST_SECONDS
            )
        except client.ApiException as error:
            if error.status == 404:
                raise HelmTestError(f"{name} was deleted before it got there; run the test again") from None
            if error.status == 403:
                raise HelmTestError(explained(error, self.namespace)) from None
            return None
        except HTTPError:
            return None
        return run.get("status") or {}

    def delete(self, name: str) -> None:
        """Delete a run; its children go with it."""
        try:
            self.api.delete_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=REQUEST_SECONDS
            )
        except (client.ApiException, HTTPError) as error:
            raise HelmTestError(f"{name} ended well but could not be deleted ({error}); delete it by hand") from None


def explained(error: client.ApiException, namespace: str) -> str:
    """Return the sentence for an answer of the API server that ends the test."""
    match error.status:
        case 404:
            return f"the GradientRun resource is not served, or {namespace} is gone: install the CRD (crds.enabled)"
        case 403:
            return f"the test's service account may not use GradientRuns in {namespace}: {_message(error)}"
        case 400 | 422:
            return f"the API server refused the run made from the values under tests: {_message(error)}"
        case _:
            return f"the API server answered {error.status}: {_message(error)}; try again"


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def run_test(runs: Runs, manifest: Mapping[str, Any], until: str, timeout_seconds: float) -> str:
    """Create, follow and delete one run; return what was proved. Raises HelmTestError, and then keeps the run."""
    name = runs.create(manifest)
    print(f"created gradientrun/{name} in {runs.namespace}", flush=True)
    try:
        follow(lambda: runs.status(name), until, timeout_seconds)
    except HelmTestError as failure:
        raise HelmTestError(f"{failure}. {_look_closer(runs.namespace, name)}") from None
    runs.delete(name)
    if until == "Suspended":
        return "The controller works. Nothing was trained: set tests.mailbox.url for a test that trains."
    return f"{name} is {until}."


def _look_closer(namespace: str, name: str) -> str:
    return (
        f"The run is kept: look with `kubectl --namespace {namespace} describe gradientrun {name}`, "
        f"then `kubectl --namespace {namespace} delete gradientrun {name}`"
    )


def main() -> None:
    """Run the test described by the arguments and the environment, and leave with 0 or 1."""
    parser = argparse.ArgumentParser(prog="python -m gradientrun.chart_test", description=__doc__)
    parser.add_argument("--until", required=True, help="condition of the run that the test waits for")
    parser.add_argument("--timeout-seconds", type=float, default=600.0, help="how long it waits")
    arguments = parser.parse_args()
    if MANIFEST not in os.environ:
        parser.error(f"{MANIFEST} is not set in the environment; give it a GradientRun as JSON, as the chart does")
    signal.signal(signal.SIGTERM, _leave)
    manifest = json.loads(os.environ[MANIFEST])
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
        runs = Runs(client.CustomObjectsApi(), manifest["metadata"]["namespace"])
        print(run_test(runs, manifest, arguments.until, arguments.timeout_seconds))
    except (config.ConfigException, HelmTestError) as error:
        sys.exit(f"helm test: {error}")


def _leave(*_: object) -> Never:
    sys.exit(TERMINATED)


if __name__ == "__main__":
    main()
