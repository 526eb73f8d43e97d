import math

import pytest

from gradientmail.report.clocks import Bounds, bounds, clock_offsets

from .simulated import state

SPEEDS = {"a": 4.0, "b": 2.0, "c": 2.0, "d": 1.0}


def learner(pool: str) -> str:
    return f"{pool}-0-abc123"


def offsets(clocks: dict[str, float]) -> dict[str, float]:
    run = state(SPEEDS, steps=2000, clocks=clocks)
    return clock_offsets(run.receipts or {}, run.units)


def test_equal_clocks_are_left_alone() -> None:
    assert offsets({}) == {learner(pool): 0.0 for pool in SPEEDS}


@pytest.mark.parametrize("ahead", [3600.0, -45.0])
def test_a_clock_that_claims_prove_wrong_is_corrected_to_within_two_units_of_work(ahead: float) -> None:
    found = offsets({"c": ahead})
    assert found[learner("c")] == pytest.approx(ahead, abs=20.0)
    assert found[learner("b")] == 0.0


def test_a_difference_that_contradicts_no_claim_is_left_alone() -> None:
    assert offsets({"d": 1.5})[learner("d")] == 0.0


def test_all_clocks_are_measured_against_the_node_with_most_units() -> None:
    found = offsets({"a": 1000.0})
    assert found[learner("a")] == 0.0
    assert found[learner("b")] == pytest.approx(-1000.0, abs=20.0)


def test_bounds_come_from_units_of_different_groups_alone() -> None:
    assert bounds([(0, 100.0)], [(0, 5.0)]) == Bounds(-math.inf, math.inf)
    assert bounds([(0, 100.0)], [(20, 5.0)]) == Bounds(95.0, math.inf)
    assert bounds([(20, 100.0)], [(0, 5.0)]) == Bounds(-math.inf, 95.0)


@pytest.mark.parametrize(
    ("found", "offset"),
    [
        (Bounds(), 0.0),
        (Bounds(-1.0, 1.0), 0.0),
        (Bounds(1.9, 50.0), 0.0),
        (Bounds(10.0, 20.0), 15.0),
        (Bounds(-20.0, -10.0), -15.0),
        (Bounds(10.0, math.inf), 10.0),
        (Bounds(-math.inf, -10.0), -10.0),
    ],
)
def test_a_clock_is_corrected_only_where_the_bounds_exclude_equality(found: Bounds, offset: float) -> None:
    assert found.offset() == offset
