"""Screen and summary of a local run, and what it leaves in the mailbox for nodes that could not."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gradientmail.exits import Exit
from gradientmail.layout import left_key
from gradientmail.local.outcome import End
from gradientmail.local.run import missing_units, with_farewells
from gradientmail.local.screen import LiveScreen, PlainScreen, live_view, plain_line
from gradientmail.local.summary import Summary, summary_text
from gradientmail.local.watching import Mark, NodeView, RunView
from gradientmail.mailbox import open_mailbox
from gradientmail.progress import NodeProgress
from gradientmail.report.figures import figures
from gradientmail.runstate import Learner
from tests.unit.report.simulated import EPOCH, state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}
DEAD = state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0))
ENDS = [
    End("a-0", "a-0-abc123", 0, ""),
    End("b-0", "b-0-abc123", -9, "killed by SIGKILL"),
    End("c-0", "c-0-abc123", 0, ""),
    End("d-0", "d-0-abc123", 0, ""),
]
WORD = NodeProgress(
    "a-0-abc123", "a-0", EPOCH, "training", claimed=4, consumed=3, step=17, loss=2.5, buffered=8, batches=30
)
VIEW = RunView(
    24,
    100,
    {
        "a-0": NodeView("a-0", "a-0-abc123", WORD, (Mark(0.0, 0, 0, 0.0), Mark(10.0, 20, 20_480, 0.1)), 5.5, 3.25),
        "b-0": NodeView("b-0", "b-0-abc123"),
    },
)


def shown(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_view_has_a_row_for_each_node() -> None:
    text = shown(live_view("demo", VIEW, elapsed=12.0, rows=10))
    assert "3/24 units" in text
    assert "35.0 s left" in text
    row = next(line for line in text.splitlines() if line.startswith("a-0"))
    assert row.split() == ["a-0", "training", "4", "3", "100", "%", "17", "2.500", "8", "1.0", "%", "2,048"]
    assert "b-0   starting" in text


def test_the_live_view_fits_eighty_columns_and_the_terminals_height() -> None:
    many = replace(VIEW, nodes={f"node-{index}": VIEW.nodes["a-0"] for index in range(100)})
    lines = shown(live_view("demo", many, elapsed=12.0, rows=20), width=80).splitlines()
    assert len(lines) == 24
    assert lines[-1].strip() == "and 80 more nodes"
    assert max(map(len, lines)) <= 80


def test_the_live_screen_is_drawn_and_taken_away_and_what_is_said_stays() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with LiveScreen("demo", console) as screen:
        screen.show(VIEW)
        screen.say("b-0 has ended")
    assert isinstance(console.file, io.StringIO)
    assert "3/24 units" in console.file.getvalue()
    assert "b-0 has ended" in console.file.getvalue()


def test_plain_lines_come_every_few_seconds() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=200)
    screen = PlainScreen(console, clock=lambda: now[0], every_seconds=5.0)
    for now[0] in (1.0, 4.9, 5.0, 6.0, 10.0):
        screen.show(VIEW)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"{plain_line(VIEW)}\n" * 2


def test_a_plain_line_says_where_the_run_stands() -> None:
    assert plain_line(VIEW) == "3 of 24 units (12 %) | 35.0 s left | a-0 3/4 loss 2.500  b-0 starting"


def test_a_killed_nodes_farewell_is_written_so_that_its_units_count_as_lost_at_once(
    request: pytest.FixtureRequest,
) -> None:
    box = open_mailbox(f"memory:{request.node.nodeid}")
    before = replace(DEAD, read_at=EPOCH + 12.0)
    assert before.lost() == {}
    views = {end.node: NodeView(end.node, end.learner) for end in ENDS}
    after = with_farewells(before, box, ENDS, views)
    assert list(after.lost().values()) == ["b-0-abc123"]
    assert list(box.list("left/")) == [left_key("b-0-abc123")]
    word = NodeProgress.from_json(box.get(left_key("b-0-abc123")) or b"")
    assert (word.phase, word.message) == ("failed", "killed by SIGKILL")


def test_units_missing_are_all_that_were_not_trained_unless_others_go_on() -> None:
    mine = {end.learner for end in ENDS}
    assert missing_units(DEAD, mine) == 2
    other = Learner("x-0-abc123", "x-0", NodeProgress("x-0-abc123", "x-0", DEAD.read_at), 1)
    going_on = replace(DEAD, learners={**DEAD.learners, other.name: other})
    assert missing_units(going_on, mine) == 1


def summary(exit: Exit = Exit.INCOMPLETE) -> Summary:
    folder = Path("runs/four-speeds/now")
    views = {end.node: NodeView(end.node, end.learner, first_held_out=5.5, last_held_out=3.25) for end in ENDS}
    return Summary(figures(DEAD), ENDS, views, exit, folder, "file:///x", [folder / "report.json"], ["a note"])


def test_the_summary_says_what_came_of_it_who_lost_what_and_where_everything_lies() -> None:
    text = shown(summary_text(summary()))
    for wanted in (
        "four-speeds: 22 of 24 units trained in 12.0 s",
        "1.227 x the ideal 9.8 s for nodes of these rates; a fixed split would have taken 22.0 s",
        "b-0: killed by SIGKILL",
        "lost with b-0: 0000",
        "a note",
        "folder      runs/four-speeds/now",
        "report      runs/four-speeds/now/report.json",
    ):
        assert wanted in text
    row = next(line for line in text.splitlines() if line.startswith("b-0 "))
    assert row.split() == ["b-0", "3", "13.6", "%", "0.5", "9.1", "%", "5.500", "->", "3.250", "1", "killed"]


def test_a_node_that_has_evaluated_once_shows_that_loss_alone() -> None:
    views = {end.node: NodeView(end.node, end.learner, first_held_out=5.5, last_held_out=5.5) for end in ENDS}
    text = shown(summary_text(replace(summary(), views=views)))
    row = next(line for line in text.splitlines() if line.startswith("b-0 "))
    assert row.split() == ["b-0", "3", "13.6", "%", "0.5", "9.1", "%", "5.500", "1", "killed"]


def test_the_summary_for_programs_has_ends_and_the_report() -> None:
    record = summary().to_dict()
    assert (record["exit"], record["exit_code"]) == ("INCOMPLETE", 5)
    assert record["ends"][1] == {
        "node": "b-0",
        "learner": "b-0-abc123",
        "ended": "killed",
        "exit_code": -9,
        "message": "killed by SIGKILL",
        "first_held_out_loss": 5.5,
        "last_held_out_loss": 3.25,
    }
    assert record["report"]["lost_units"] == 1
