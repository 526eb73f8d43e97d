"""The parts of a reconcile that decide what to ask; the rest is for tests/cluster."""

from __future__ import annotations

import pytest

from gradientrun.reconcile import unexplained_deletions
from gradientrun.runs import Manifest
from tests.unit.controller.manifests import a_run, job_manifest, observed, pod_manifest, running

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
