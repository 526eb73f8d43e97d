"""The simulated shared queue: the page's example, the buffer's part in the tail, changing speeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.simulation import SimulatedNode, ideal_time, simulate
from gradientmail.units import grid


def steady(*speeds: float) -> list[SimulatedNode]:
    return [SimulatedNode.steady("ABCDEFGH"[index], speed) for index, speed in enumerate(speeds)]


def test_the_pages_example() -> None:
    result = simulate(grid(steps=6, unit_steps=1, lanes=4), steady(1, 1 / 2, 1 / 2, 1 / 4), claim_ahead=0)
    assert result.units_of == {"A": 11, "B": 5, "C": 5, "D": 3}
    assert result.makespan == 12
    assert result.finished == {"A": 11, "B": 10, "C": 10, "D": 12}
    assert result.fixed_split == 24
    assert result.ideal == 24 / 2.25


def test_the_times_of_the_pages_first_units() -> None:
    result = simulate(grid(steps=6, unit_steps=1, lanes=4), steady(1, 1 / 2, 1 / 2, 1 / 4), claim_ahead=0)
    assert [(unit.identifier[5:8], unit.node, unit.started, unit.finished) for unit in result.units[:7]] == [
        ("0-0", "A", 0, 1),
        ("0-1", "B", 0, 2),
        ("0-2", "C", 0, 2),
        ("0-3", "D", 0, 4),
        ("1-0", "A", 1, 2),
        ("1-1", "A", 2, 3),
        ("1-2", "B", 2, 4),
    ]


def test_a_fixed_split_of_400_blocks_leaves_the_slowest_alone() -> None:
    result = simulate(grid(steps=100, unit_steps=1, lanes=4), steady(4, 2, 2, 1), claim_ahead=0)
    assert result.fixed_split == 100
    assert result.makespan == 45


def test_a_loader_claims_once_the_buffer_has_room_for_a_batch() -> None:
    one_unit_at_a_time = simulate(grid(steps=8, unit_steps=4, lanes=1), steady(1), prefetch=1)
    assert [unit.claimed for unit in one_unit_at_a_time.units] == [0, 3]
    assert [unit.claimed for unit in simulate(grid(steps=8, unit_steps=4, lanes=1), steady(1), prefetch=3).units] == [
        0,
        1,
    ]


@pytest.mark.parametrize(("claim_ahead", "claimed"), [(0, [0, 4, 8]), (1, [0, 3, 7]), (2, [0, 2, 6]), (9, [0, 1, 5])])
def test_claim_ahead_delays_claims_but_never_beyond_the_buffer(claim_ahead: int, claimed: list[float]) -> None:
    units = grid(steps=12, unit_steps=4, lanes=1)
    result = simulate(units, steady(1), prefetch=3, claim_ahead=claim_ahead)
    assert [unit.claimed for unit in result.units] == claimed


def test_nodes_that_claim_several_units_at_once_take_turns() -> None:
    result = simulate(grid(steps=3, unit_steps=1, lanes=2), steady(1, 1), prefetch=2)
    assert [unit.node for unit in result.units] == ["A", "B", "A", "B", "A", "B"]


def test_the_slowest_nodes_buffer_is_part_of_the_tail() -> None:
    units = grid(steps=4000, unit_steps=20, lanes=4, taper=True)
    tails = [simulate(units, steady(4, 2, 2, 1), prefetch=prefetch).tail for prefetch in (1, 8, 64)]
    assert tails[0] < 0.001
    assert 0.002 < tails[1] < 0.003
    assert tails[2] > 0.015


def test_the_others_take_over_when_a_node_slows_down() -> None:
    slowing = [SimulatedNode("A", ((0, 4), (10, 1))), SimulatedNode.steady("B", 1)]
    result = simulate(grid(steps=60, unit_steps=1, lanes=1), slowing, claim_ahead=0)
    assert result.ideal == 15
    assert result.units_of == {"A": 45, "B": 15}
    assert result.makespan == 15


def test_a_node_without_a_unit_is_done_at_once() -> None:
    result = simulate(grid(steps=1, unit_steps=1, lanes=1), steady(1, 1))
    assert result.units_of == {"A": 1, "B": 0}
    assert result.finished == {"A": 1, "B": 0}


@given(
    speeds=st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=6),
    steps=st.integers(1, 80),
    unit_steps=st.integers(1, 20),
    lanes=st.integers(1, 5),
    prefetch=st.integers(1, 12),
    taper=st.booleans(),
)
def test_every_unit_is_trained_once_and_no_run_beats_the_ideal(
    speeds: list[float], steps: int, unit_steps: int, lanes: int, prefetch: int, taper: bool
) -> None:
    units = grid(steps=steps, unit_steps=unit_steps, lanes=lanes, taper=taper)
    result = simulate(units, steady(*speeds), prefetch=prefetch)
    assert [unit.identifier for unit in result.units] == list(units)
    assert sum(result.units_of.values()) == len(units)
    assert result.makespan >= result.ideal * (1 - 1e-12)
    assert result.makespan <= result.ideal + (unit_steps + prefetch) / min(speeds)


def test_an_ideal_across_changes_of_speed() -> None:
    nodes = [SimulatedNode("A", ((0, 2), (5, 1), (8, 4))), SimulatedNode("B", ((0, 1), (6, 3)))]
    assert ideal_time(nodes, 15) == 5
    assert ideal_time(nodes, 17) == 6
    assert ideal_time(nodes, 32) == 9
    assert nodes[0].moment(13) == 8
    assert nodes[0].trained(9) == 17


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        (((0, 0),), "speed of A is 0: it must be above 0"),
        (((0, 1), (3, -1)), "speed of A is -1: it must be above 0"),
        (((1, 1),), "speeds of A start at [1]: the first must start at 0, the others later"),
        ((), "speeds of A start at []: the first must start at 0, the others later"),
    ],
)
def test_impossible_speeds_are_refused(speeds: tuple[tuple[float, float], ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        SimulatedNode("A", speeds)
    assert str(caught.value) == message


def test_a_simulation_needs_units_and_nodes_with_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="at least one unit and one node"):
        simulate({}, steady(1))
    with pytest.raises(ValueError, match="two nodes share a name: A, A"):
        simulate(grid(steps=1, unit_steps=1, lanes=1), [*steady(1), *steady(2)])
