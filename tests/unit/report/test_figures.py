import pytest

from gradientmail.report.figures import figures
from gradientmail.runstate import RunState

from .simulated import state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}
"""The speeds of the shared queue's page, in units per unit of time; units have one step."""


def page(**changes: object) -> RunState:
    return state(PAGE, steps=6, unit_steps=1, lanes=4, **changes)  # type: ignore[arg-type]


def test_the_pages_run_has_the_pages_figures() -> None:
    result = figures(page())
    assert [(node.node, node.units) for node in result.nodes] == [("a-0", 11), ("b-0", 5), ("c-0", 5), ("d-0", 3)]
    assert result.makespan_seconds == pytest.approx(12.0)
    assert result.fixed_split_seconds == pytest.approx(24.0)
    assert result.ideal_seconds == pytest.approx(24 / 2.25)
    assert result.over_ideal == pytest.approx(12 * 2.25 / 24)
    assert (result.total_units, result.consumed_units, result.lost_units, result.unclaimed_units) == (24, 24, 0, 0)


def test_rates_and_shares_are_those_measured() -> None:
    slow = figures(page()).nodes[3]
    assert slow.batches_per_second == pytest.approx(0.25)
    assert slow.busy_seconds == pytest.approx(12.0)
    assert slow.share == pytest.approx(3 / 24)
    assert slow.wait_share == pytest.approx(1 / 13)
    assert slow.held_out_loss == 2.5


def test_a_dead_nodes_unit_is_lost_and_lies_between_its_last_receipt_and_its_last_word() -> None:
    result = figures(page(dies=("b", 7.0)))
    assert result.lost_units == 1
    assert list(result.lost.values()) == ["b-0"]
    assert result.nodes[1].units == 3
    assert result.nodes[1].lost_units == 1
    assert [(rest.node, rest.units, rest.lost) for rest in result.remainders] == [("b-0", 1, True)]
    assert result.remainders[0].start == pytest.approx(6.0)
    assert result.remainders[0].finish == pytest.approx(7.0)


def test_while_its_owner_lives_an_unfinished_unit_is_not_lost() -> None:
    result = figures(page(dies=("b", 7.0)), silent_after=1e9)
    assert result.lost_units == 0
    assert result.nodes[1].lost_units == 0
    assert [rest.lost for rest in result.remainders] == [False]


def test_a_clock_an_hour_ahead_does_not_stretch_the_run() -> None:
    plain, skewed = state(PAGE, steps=600), state(PAGE, steps=600, clocks={"c": 3600.0})
    result = figures(skewed)
    assert result.makespan_seconds == pytest.approx(figures(plain).makespan_seconds, abs=80.0)
    assert result.nodes[2].clock_offset_seconds == pytest.approx(3600.0, abs=80.0)


def test_a_run_without_a_receipt_has_no_rates() -> None:
    result = figures(RunState(read_at=0.0))
    assert (result.ideal_seconds, result.fixed_split_seconds, result.over_ideal) == (None, None, None)
    assert result.makespan_seconds == 0.0
    assert result.total_units is None


def test_json_holds_every_figure_but_no_boxes() -> None:
    record = figures(page(dies=("b", 7.0))).to_dict()
    assert "boxes" not in record
    assert record["nodes"][0]["units"] == 11
    assert record["makespan_over_ideal"] == pytest.approx(record["makespan_seconds"] / record["ideal_seconds"])
    assert len(record["lost"]) == 1


def test_a_node_that_died_before_its_first_receipt_still_shows() -> None:
    result = figures(page(dies=("d", 3.0)))
    (rest,) = result.remainders
    assert (rest.node, rest.units, rest.lost) == ("d-0", 1, True)
    assert rest.start == rest.finish == pytest.approx(3.0)
