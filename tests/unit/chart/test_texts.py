"""Texts of the chart that people copy from: they must hold what the software takes."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from gradientmail.run import GROUP, KIND, PLURAL, VERSION, GradientRun, Trainer
from tests.unit.chart.rendering import CHART, ROOT, Helm

pytestmark = pytest.mark.timeout(60, func_only=True)


def chart() -> Any:
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


def in_notes(helm: Helm) -> Any:
    pattern = r"^kubectl .* apply --filename - <<END\n(.*?)\nEND\n"
    (heredoc,) = re.findall(pattern, helm.notes(), re.DOTALL | re.MULTILINE)
    return yaml.safe_load(heredoc)


def in_catalogue() -> Any:
    (example,) = yaml.safe_load(chart()["annotations"]["artifacthub.io/crdsExamples"])
    return example


def in_values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())["tests"]


def test_notes_hold_a_valid_manifest(helm: Helm) -> None:
    run = GradientRun.model_validate(in_notes(helm))
    assert run.metadata.name == "first"
    assert [pool.name for pool in run.spec.nodes] == ["fast", "slow"]


def test_notes_name_the_objects_of_the_release(helm: Helm) -> None:
    notes = helm.notes('watchNamespaces=["team-a","team-b"]')
    assert notes.startswith("The GradientRun controller serves the namespaces team-a, team-b.")
    assert "kubectl --namespace system rollout status deployment/trial-gradientmail" in notes
    assert "helm --namespace system test trial" in notes
    assert "kubectl --namespace team-a get gradientruns --watch" in notes


def test_notes_say_what_the_test_does(helm: Helm) -> None:
    assert "To have it train, set tests.mailbox.url." in helm.notes()
    assert "The test trains a small run in s3://bucket/test." in helm.notes('tests.mailbox.url="s3://bucket/test"')


def test_notes_say_what_is_left_to_do_by_hand(helm: Helm) -> None:
    usual = helm.notes()
    assert "by other means" not in usual
    left = helm.notes("crds.enabled=false", "rbac.create=false")
    assert "crds.enabled is false: the GradientRun CRD of this version must have been installed by other means." in left
    assert "bind the controller's permissions to the service account trial-gradientmail by other means." in left


def test_versions_agree() -> None:
    projects = [tomllib.loads((ROOT / part / "pyproject.toml").read_text()) for part in ("trainer", "controller")]
    assert {project["project"]["version"] for project in projects} == {chart()["appVersion"]}


def test_catalogue_lists_the_images_in_use() -> None:
    images = yaml.safe_load(chart()["annotations"]["artifacthub.io/images"])
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {entry["name"]: entry["image"] for entry in images} == {
        "controller": f"{values['image']['repository']}:{chart()['appVersion']}",
        "trainer": Trainer().image,
    }


def test_catalogue_describes_the_resource() -> None:
    (crd,) = yaml.safe_load(chart()["annotations"]["artifacthub.io/crds"])
    assert (crd["kind"], crd["version"], crd["name"]) == (KIND, VERSION, f"{PLURAL}.{GROUP}")
    assert GradientRun.model_validate(in_catalogue()).metadata.name == "first"


def test_trial_corpus_is_where_the_image_has_it_and_long_enough(helm: Helm) -> None:
    path = "/opt/gradientmail/share/python-library.bin"
    dockerfile = (ROOT / "Dockerfile.trainer").read_text()
    assert f"/staging{path}" in dockerfile
    assert "[:2**20]" in dockerfile
    for spec in (in_notes(helm)["spec"], in_catalogue()["spec"], in_values()):
        arguments, data = spec["trainer"]["args"], spec["data"]
        assert arguments["train"] == path
        assert data["steps"] * data["batch"] * arguments["context"] < 2**20
