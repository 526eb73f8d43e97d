"""Every GradientRun in examples/ is taken by the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.harness.api import RUNS
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.tool import ROOT


def manifests() -> Iterator[Path]:
    """Yield the files under examples/ that hold a GradientRun."""
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        parts = yaml.safe_load_all(file.read_text())
        if any(isinstance(part, dict) and part.get("kind") == "GradientRun" for part in parts):
            yield file


@pytest.fixture(scope="module")
def trial(shared_namespaces: Namespaces) -> Namespace:
    return shared_namespaces.create("examples")


@pytest.mark.parametrize("file", list(manifests()), ids=lambda file: str(file.relative_to(ROOT)))
def test_an_example_is_taken_by_the_api_server(trial: Namespace, file: Path) -> None:
    for manifest in yaml.safe_load_all(file.read_text()):
        spec = manifest["spec"]
        # Examples for one machine leave the bucket out, which a cluster needs.
        on_a_cluster = {**manifest, "spec": {**spec, "mailbox": spec.get("mailbox", {"url": "s3://my-bucket/runs"})}}
        taken = trial.api.create(RUNS, trial.name, on_a_cluster, fieldValidation="Strict", dryRun="All")
        assert taken["metadata"]["name"] == manifest["metadata"]["name"]
    assert (file.parent.name == "cluster") <= ("my-bucket" in file.read_text())
