import pytest

from gradientmail.report.figures import Box, figures
from gradientmail.report.timeline import (
    boxes_by_node,
    busy_shares,
    clock,
    consumed_over_time,
    headline,
    ink_on,
    palette,
    short,
    tick_seconds,
    too_narrow,
)

from .simulated import state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}


def box(start: float, finish: float, node: str = "a-0") -> Box:
    return Box(node, "000000-0.json", 0, start, finish, 1)


def test_the_headline_says_what_the_run_came_to() -> None:
    told = headline(figures(state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0))))
    assert told.startswith("22 units trained by 4 nodes in 12.0 s")
    assert told.endswith("1 unit lost")


def test_busy_shares_are_what_the_boxes_cover_of_each_stretch() -> None:
    assert busy_shares([box(0.0, 2.5), box(3.0, 3.5)], 4.0, 4) == [1.0, 1.0, 0.5, 0.5]
    assert busy_shares([], 4.0, 2) == [0.0, 0.0]


def test_a_box_on_the_last_edge_is_within_the_last_stretch() -> None:
    assert busy_shares([box(4.0, 4.0)], 4.0, 4) == [0.0, 0.0, 0.0, 0.0]


def test_shades_are_wanted_once_more_than_half_of_the_boxes_cannot_be_seen() -> None:
    assert not too_narrow([box(0, 1), box(0, 3)], 2.0)
    assert too_narrow([box(0, 1), box(0, 1), box(0, 3)], 2.0)


def test_units_consumed_rise_by_one_at_the_end_of_each_box() -> None:
    boxes = [box(0, 3), box(0, 1), box(0, 2, "b-0")]
    assert consumed_over_time(boxes) == {"a-0": [(1, 1.0), (3, 2.0)], "b-0": [(2, 1.0)]}
    assert {node: len(own) for node, own in boxes_by_node(boxes).items()} == {"a-0": 2, "b-0": 1}


@pytest.mark.parametrize(
    ("end", "step"),
    [(0.03, 0.005), (0.9, 0.1), (7.0, 1.0), (12.0, 2.0), (60.0, 10.0), (600.0, 60.0), (90_000.0, 14_400.0)],
)
def test_ticks_are_round_and_at_most_ten(end: float, step: float) -> None:
    assert tick_seconds(end) == pytest.approx(step)
    assert end / tick_seconds(end) <= 10


@pytest.mark.parametrize(("end", "step"), [(0.9, 0.2), (12.0, 2.0), (90_000.0, 21_600.0), (1e6, 172_800.0)])
def test_fewer_ticks_are_further_apart(end: float, step: float) -> None:
    assert tick_seconds(end, 6) == pytest.approx(step)


@pytest.mark.parametrize(
    ("seconds", "end", "text"), [(2.5, 12.0, "2.5 s"), (90.0, 600.0, "1:30"), (3725.0, 9000.0, "1:02:05")]
)
def test_moments_on_the_axis(seconds: float, end: float, text: str) -> None:
    assert clock(seconds, end) == text


@pytest.mark.parametrize("lanes", [1, 8, 9, 64])
def test_every_lane_has_a_colour_of_its_own(lanes: int) -> None:
    colours = palette(lanes)
    assert len(colours) == max(8, lanes)
    assert len(set(colours)) == len(colours)


def test_text_reads_on_its_colour() -> None:
    assert (ink_on("#0072B2"), ink_on("#E69F00")) == ("#ffffff", "#000000")


@pytest.mark.parametrize(
    ("identifier", "text"), [("000007-2.json", "7-2"), ("000000-0.json", "0-0"), ("anything", "anything")]
)
def test_units_are_named_by_group_and_lane(identifier: str, text: str) -> None:
    assert short(identifier) == text
