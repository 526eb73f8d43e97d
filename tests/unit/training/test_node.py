"""One node's part of a run, from the manifest."""

from __future__ import annotations

from typing import Any

import pytest

from gradientmail.exits import UserError
from gradientmail.mailbox import S3Options
from gradientmail.manifest import run_from_object
from gradientmail.run import GradientRun
from gradientmail.stores import s3_options
from gradientmail.training.node import Place, check_learner, place_of, preference, slowness
from gradientmail.training.slowness import Slowness
from gradientmail.units import grid


def run(**spec: Any) -> GradientRun:
    nodes = [
        {"name": "a100", "replicas": 2, "simulatedSpeed": 4},
        {"name": "t4-spot", "replicas": 3, "simulatedSpeed": 1},
        {"name": "rest"},
    ]
    base = {"data": {"steps": 40, "batch": 32, "lanes": 4}, "nodes": nodes}
    return run_from_object(
        {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": "first"},
            "spec": base | spec,
        }
    )


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ("a100-0", Place("a100", 0)),
        ("a100-1", Place("a100", 1)),
        ("t4-spot-2", Place("t4-spot", 4)),
        ("rest-0", Place("rest", 5)),
        ("rest-7", Place("rest", 12)),
    ],
)
def test_place_counts_over_all_pools(node: str, place: Place) -> None:
    assert place_of(run(), node) == place


@pytest.mark.parametrize("node", ["b-0", "a100", "a100-x", "t4-0", ""])
def test_unknown_node_is_named_with_the_pools(node: str) -> None:
    with pytest.raises(UserError) as error:
        place_of(run(), node)
    assert str(error.value) == (
        f"node {node!r} is not of this run: nodes are named {{pool}}-{{index}}, "
        "and the pools are 'a100', 't4-spot', 'rest'"
    )


def test_each_node_begins_with_a_lane_of_its_own() -> None:
    units = grid(steps=40, unit_steps=20, lanes=4)
    firsts = [next(iter(preference(units, Place("p", ordinal), 4))) for ordinal in range(6)]
    assert firsts == [f"000000-{lane}.json" for lane in (0, 1, 2, 3, 0, 1)]


@pytest.mark.parametrize(
    ("pool", "asked", "slow"),
    [
        ("a100", None, Slowness(1.0)),
        ("t4-spot", None, Slowness(4.0)),
        ("rest", None, Slowness(1.0)),
        ("a100", 1.5, Slowness(1.5, headroom=1.5)),
        ("t4-spot", 6.0, Slowness(6.0, headroom=1.5)),
        ("t4-spot", 2.0, Slowness(2.0)),
    ],
)
def test_slowness_is_what_is_asked_or_simulated(pool: str, asked: float | None, slow: Slowness) -> None:
    assert slowness(run(), Place(pool, 0), asked) == slow


def test_without_simulated_speeds_there_is_no_headroom() -> None:
    assert slowness(run(nodes=[{"name": "a"}]), Place("a", 0), 3.0) == Slowness(3.0)


@pytest.mark.parametrize("learner", ["a/b", "", "a\nb", "x" * 300])
def test_learner_that_no_key_can_hold_is_refused(learner: str) -> None:
    with pytest.raises(UserError, match="cannot be used"):
        check_learner(learner)


def test_store_options_come_from_the_manifest() -> None:
    mailbox = {
        "url": "s3://bucket/runs",
        "endpointURL": "http://store:9000",
        "region": "eu-1",
        "checksums": "WhenRequired",
        "addressing": "Path",
    }
    assert s3_options(run(mailbox=mailbox).spec.mailbox) == S3Options(
        endpoint_url="http://store:9000", region="eu-1", checksums="when_required", addressing_style="path"
    )
    assert s3_options(run().spec.mailbox) == S3Options()
