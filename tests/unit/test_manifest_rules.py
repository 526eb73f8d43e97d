"""The library's verdict on every manifest of the shared table, and the CRD's rules as they stand in Python."""

from __future__ import annotations

import json

import pytest
import yaml

from gradientmail.manifest import ManifestError, dump_manifest, parse_manifest, run_from_object
from tests.manifest_rules import ALLOWED_UPDATES, BAD, CLUSTER_ONLY, GOOD, Case, Update


@pytest.mark.parametrize("case", [*GOOD, *CLUSTER_ONLY], ids=lambda case: case.name)
def test_a_good_manifest_is_taken_and_comes_back_equal(case: Case) -> None:
    run = parse_manifest(yaml.safe_dump(case.manifest))
    assert parse_manifest(json.dumps(case.manifest)) == run
    assert run_from_object(case.manifest) == run
    assert parse_manifest(dump_manifest(run)) == run
    assert parse_manifest(dump_manifest(run, "json")) == run


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_manifest_is_refused_in_one_sentence(case: Case) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(yaml.safe_dump(case.manifest))
    (problem,) = caught.value.problems
    assert case.library in problem.sentence
    assert problem.path in problem.sentence
    assert "secret" not in problem.sentence.replace("secretName", "")


@pytest.mark.parametrize("update", ALLOWED_UPDATES, ids=lambda update: update.name)
def test_both_sides_of_an_allowed_update_are_good_manifests(update: Update) -> None:
    assert run_from_object(update.first) != run_from_object(update.second) or "default" in update.name
