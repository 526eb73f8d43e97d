"""What the nodes' lines tell over a whole run."""

from __future__ import annotations

import json

from gradientmail.local.history import MOST_POINTS, History


def line(event: str, **fields: object) -> str:
    return json.dumps({"time": 1.0, "event": event, "message": "", **fields})


def progress(step: int | None, loss: float | None) -> str:
    return line("progress", progress={"learner": "a-0-x", "node": "a-0", "step": step, "loss": loss})


def test_units_belong_to_the_node_that_claimed_and_consumed_them() -> None:
    history = History()
    history.note("a-0", line("unit-claimed", unit="000000-0.json"))
    history.note("b-0", line("unit-claimed", unit="000000-1.json"))
    history.note("a-0", line("unit-consumed", unit="000000-0.json"))
    told = history.told()
    assert told.claimed == {"000000-0.json": "a-0", "000000-1.json": "b-0"}
    assert told.consumed == {"000000-0.json": "a-0"}
    assert told.receipts == {"a-0": 1}


def test_the_loss_is_noted_once_for_each_logged_step() -> None:
    history = History()
    for step, loss in [(None, None), (0, 3.0), (5, 3.0), (20, 2.5)]:
        history.note("a-0", progress(step, loss))
    assert history.told().loss == {"a-0": ((0.0, 3.0), (20.0, 2.5))}


def test_what_is_no_number_and_what_is_no_record_is_passed_over() -> None:
    history = History()
    for text in ("", "Traceback", "{", '{"event": 3}', line("progress", progress=None), line("unit-claimed", unit=7)):
        history.note("a-0", text)
    history.note("a-0", '{"event": "progress", "progress": {"step": 1, "loss": NaN}}')
    told = history.told()
    assert (told.claimed, told.consumed, told.loss) == ({}, {}, {})


def test_a_long_runs_loss_is_thinned_and_keeps_its_ends() -> None:
    history = History()
    for step in range(3 * MOST_POINTS):
        history.note("a-0", progress(step, 10.0 - step / MOST_POINTS))
    points = history.told().loss["a-0"]
    assert len(points) <= MOST_POINTS
    assert points[0][0] == 0
    assert points[-1][0] == 3 * MOST_POINTS - 1
    assert list(points) == sorted(points)


def test_a_copy_does_not_change() -> None:
    history = History()
    told = history.told()
    history.note("a-0", line("unit-claimed", unit="000000-0.json"))
    assert told.claimed == {}
