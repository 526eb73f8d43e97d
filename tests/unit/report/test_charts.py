import re
from dataclasses import replace

import pytest

from gradientmail.report.charts import Series, lines, number_axis, seconds_axis, shades_only, thinned, timeline
from gradientmail.report.figures import NodeFigures, RunFigures, figures

from .simulated import state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}


def page(**changes: object) -> RunFigures:
    return figures(state(PAGE, steps=6, unit_steps=1, **changes))  # type: ignore[arg-type]


def test_the_timeline_has_a_lane_for_each_node_and_a_box_for_each_unit() -> None:
    text = timeline(page())
    assert text.count('class="lane"') == 4
    assert text.count('class="box"') == 24
    assert "<title>5-3 on a-0: 1 batch, 10 s to 11 s</title>" in text
    assert 'aria-label="a-0: 11 units, 46 %"' in text


def test_a_boxs_place_and_width_are_its_part_of_the_time() -> None:
    (first,) = re.findall(r'<rect class="box" x="([^"]+)" width="([^"]+)"[^>]*><title>0-3 on d-0', timeline(page()))
    assert first == ("0%", "33.333%")


def test_lost_and_open_units_are_told_apart() -> None:
    assert '<rect class="rest lost"' in timeline(page(dies=("b", 7.0)))
    going = figures(state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0)), silent_after=1e9)
    assert '<rect class="rest in"' in timeline(going)


def test_units_too_many_to_be_seen_become_a_few_shades() -> None:
    many = figures(state({"a": 4.0, "b": 1.0}, steps=5_000, unit_steps=1))
    assert len(many.boxes) == 20_000
    text = timeline(many)
    assert shades_only(many)
    assert 'class="box"' not in text
    assert 1 <= text.count('class="shade"') <= 20
    assert len(text) < 5_000


def test_a_thousand_nodes_are_a_hundred_lanes() -> None:
    nodes = [NodeFigures(f"a-{index}", units=1) for index in range(1000)]
    assert timeline(replace(page(), nodes=nodes)).count('class="lane"') == 100


def test_a_line_runs_from_the_lower_left_to_the_upper_right() -> None:
    series = [Series("a", [(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)])]
    y = number_axis([0.0, 10.0], from_zero=True)
    text = lines(series, label="what", x=seconds_axis(series), y=y, legend=lambda each: each.name)
    assert 'd="M0.0 100.0L500.0 50.0L1000.0 0.0"' in text
    assert 'aria-label="what"' in text


def test_steps_go_across_before_they_go_up() -> None:
    series = [Series("a", [(5.0, 10.0)])]
    text = lines(
        series,
        label="what",
        x=number_axis([0.0, 10.0], from_zero=True),
        y=number_axis([0.0, 10.0], from_zero=True),
        stepped=True,
        legend=lambda each: each.name,
    )
    assert 'd="M0.0 100.0H500.0V0.0H1000.0V0.0"' in text


def test_lines_beyond_the_colours_are_dashed_and_those_beyond_reading_counted() -> None:
    series = [Series(f"n{index}", [(0.0, 1.0), (1.0, 2.0)]) for index in range(30)]
    axis = number_axis([0.0, 2.0], from_zero=True)
    text = lines(series, label="what", x=axis, y=axis, legend=lambda each: each.name)
    assert text.count('stroke-dasharray="6 3"') == 16
    assert "and 6 more nodes" in text


@pytest.mark.parametrize(
    ("values", "from_zero", "ticks"),
    [
        ([0.0, 11.0], True, ["0", "2", "4", "6", "8", "10", "12"]),
        ([2.31, 2.44], False, ["2.30", "2.35", "2.40", "2.45"]),
        ([3.0, 3.0], False, ["2.5", "3.0", "3.5", "4.0"]),
        ([], True, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_axes_hold_their_values_between_round_ticks(values: list[float], from_zero: bool, ticks: list[str]) -> None:
    axis = number_axis(values, from_zero=from_zero)
    assert [axis.written(tick) for tick in axis.ticks] == ticks


def test_thinning_keeps_both_ends() -> None:
    points = [(float(index), 0.0) for index in range(10_000)]
    few = thinned(points, 100)
    assert len(few) == 100
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert thinned(points[:50], 100) == points[:50]
