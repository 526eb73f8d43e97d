"""The data grid's units: the page's mapping, coverage, order, and one node's preference."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.simulation import SimulatedNode, Simulation, ideal_time, simulate
from gradientmail.units import Unit, first_lane, grid

steps_counts = st.integers(1, 400)
unit_steps_counts = st.integers(1, 60)
lane_counts = st.integers(1, 24)


def test_a_unit_of_the_pages_grid() -> None:
    units = grid(steps=4000, unit_steps=20, lanes=4)
    assert len(units) == 800
    assert units["000000-2.json"] == Unit(first=0, count=20, lane=2, lanes=4)
    assert list(units)[:5] == ["000000-0.json", "000000-1.json", "000000-2.json", "000000-3.json", "000001-0.json"]
    assert list(units)[-1] == "000199-3.json"


@given(steps=steps_counts, unit_steps=unit_steps_counts, nodes=lane_counts)
def test_the_even_grid_is_the_pages_mapping_in_its_order(steps: int, unit_steps: int, nodes: int) -> None:
    page = {
        f"{first // unit_steps:06d}-{lane}.json": Unit(
            first=first,
            count=min(unit_steps, steps - first),
            lane=lane,
            lanes=nodes,
        )
        for first in range(0, steps, unit_steps)
        for lane in range(nodes)
    }
    assert list(grid(steps=steps, unit_steps=unit_steps, lanes=nodes).items()) == list(page.items())


@given(steps=steps_counts, unit_steps=unit_steps_counts, lanes=lane_counts, taper=st.booleans())
def test_every_lane_of_every_step_is_in_exactly_one_unit(steps: int, unit_steps: int, lanes: int, taper: bool) -> None:
    units = grid(steps=steps, unit_steps=unit_steps, lanes=lanes, taper=taper)
    covered = Counter(
        (step, unit.lane) for unit in units.values() for step in range(unit.first, unit.first + unit.count)
    )
    assert covered == Counter((step, lane) for step in range(steps) for lane in range(lanes))
    assert all(1 <= unit.count <= unit_steps and unit.lanes == lanes for unit in units.values())


@given(steps=steps_counts, unit_steps=unit_steps_counts, lanes=lane_counts)
def test_tapered_identifiers_sort_in_claiming_order_and_units_never_grow(
    steps: int, unit_steps: int, lanes: int
) -> None:
    units = grid(steps=steps, unit_steps=unit_steps, lanes=lanes, taper=True)
    assert list(units) == sorted(units, key=str.encode)
    counts = [unit.count for unit in units.values()]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1


@given(steps=steps_counts, unit_steps=unit_steps_counts, lanes=st.integers(1, 10))
def test_even_identifiers_sort_in_claiming_order_up_to_ten_lanes(steps: int, unit_steps: int, lanes: int) -> None:
    units = grid(steps=steps, unit_steps=unit_steps, lanes=lanes)
    assert list(units) == sorted(units, key=str.encode)


def test_a_tapered_grid_pads_lanes_and_numbers_groups_as_they_come() -> None:
    units = grid(steps=40, unit_steps=4, lanes=11, taper=True)
    assert list(units)[:2] == ["000000-00.json", "000000-01.json"]
    assert [unit.count for unit in units.values() if unit.lane == 0] == [4, 4, 4, 3, 3, 2, 2, 2, 2, *[1] * 14]


@pytest.mark.parametrize("name", ["steps", "unit_steps", "lanes"])
def test_a_grid_without_extent_is_refused(name: str) -> None:
    numbers = {"steps": 8, "unit_steps": 2, "lanes": 2, name: 0}
    with pytest.raises(ValueError, match=f"^{name} is 0: a grid needs at least 1$"):
        grid(steps=numbers["steps"], unit_steps=numbers["unit_steps"], lanes=numbers["lanes"])


@given(
    steps=steps_counts,
    unit_steps=unit_steps_counts,
    lanes=lane_counts,
    taper=st.booleans(),
    lane=st.integers(-50, 50),
)
def test_a_preference_keeps_the_units_and_the_order_of_groups(
    steps: int, unit_steps: int, lanes: int, taper: bool, lane: int
) -> None:
    units = grid(steps=steps, unit_steps=unit_steps, lanes=lanes, taper=taper)
    preferred = first_lane(units, lane)
    assert preferred == units
    assert [unit.first for unit in preferred.values()] == [unit.first for unit in units.values()]
    assert next(iter(preferred.values())).lane == lane % lanes


def test_a_preference_goes_on_with_the_following_lanes() -> None:
    preferred = first_lane(grid(steps=2, unit_steps=1, lanes=4), 2)
    assert [identifier[5:8] for identifier in preferred] == ["0-2", "0-3", "0-0", "0-1", "1-2", "1-3", "1-0", "1-1"]


def test_a_preference_follows_a_mapping_in_another_order() -> None:
    units = grid(steps=3, unit_steps=1, lanes=2)
    backwards = dict(reversed(units.items()))
    assert [(unit.first, unit.lane) for unit in first_lane(backwards, 0).values()] == [
        (2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1),
    ]  # fmt: skip


def run_of_the_page(speeds: tuple[float, ...], *, slows_down: bool, claim_ahead: int | None) -> Simulation:
    nodes = [SimulatedNode.steady(f"node-{index}", speed) for index, speed in enumerate(speeds)]
    if slows_down:
        half = ideal_time(nodes, 4000 * len(nodes)) / 2
        nodes[0] = SimulatedNode("node-0", ((0.0, speeds[0]), (half, speeds[0] / 4)))
    units = grid(steps=4000, unit_steps=20, lanes=len(nodes), taper=True)
    assert len(units) < 1.15 * 200 * len(nodes)
    return simulate(units, nodes, prefetch=8, claim_ahead=claim_ahead)


@pytest.mark.parametrize("slows_down", [False, True])
@pytest.mark.parametrize("speeds", [(4, 2, 2, 1), (3, 2.2, 1.7, 1.1), (4, 2, 2, 1) * 4])
def test_a_taper_ends_the_pages_run_within_a_two_hundredth_of_the_ideal(
    speeds: tuple[float, ...], slows_down: bool
) -> None:
    assert run_of_the_page(speeds, slows_down=slows_down, claim_ahead=None).tail <= 0.005


@pytest.mark.parametrize("slows_down", [False, True])
@pytest.mark.parametrize("speeds", [(4, 2, 2, 1), (1, 1, 1, 1), (8, 4, 2, 1), (16, 1, 1, 1), (8, 1) * 8])
def test_claiming_late_ends_any_run_within_a_five_hundredth(speeds: tuple[float, ...], slows_down: bool) -> None:
    assert run_of_the_page(speeds, slows_down=slows_down, claim_ahead=1).tail <= 0.002
