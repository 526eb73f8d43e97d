"""What a local run shows of the exchange: on the screen, in its lines and in its summary."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gradientmail.exits import Exit
from gradientmail.local.outcome import End
from gradientmail.local.screen import live_view, plain_line
from gradientmail.local.summary import Summary, summary_text
from gradientmail.local.watching import NodeView, RunView
from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.report.exchanged import Exchanged, FinalModel
from gradientmail.report.figures import figures
from tests.unit.report.simulated import EPOCH, state

A = ExchangeProgress(
    merged=12,
    missed=1,
    adopted=14,
    versions=(7, 6),
    staleness_steps=5,
    staleness_steps_total=40,
    sent_bytes=1_250_000,
    received_bytes=640_000,
    blocked_seconds=0.5,
)
B = ExchangeProgress(merged=3, adopted=6, versions=(5, 6), staleness_steps=1, staleness_steps_total=10, refused=1)
LINE = "versions 5 to 7, mean staleness 2.5 steps, 1.25 MB sent, 640 kB received, 1 object refused"


def node(name: str, exchange: ExchangeProgress | None) -> NodeView:
    word = NodeProgress(f"{name}-abc123", name, EPOCH, "training", claimed=4, consumed=3, exchange=exchange)
    return NodeView(name, word.learner, word)


def nodes(a: ExchangeProgress | None = A, b: ExchangeProgress | None = B) -> dict[str, NodeView]:
    starting = NodeView("c-0", "c-0-abc123")
    return {"a-0": node("a-0", a), "b-0": node("b-0", b), "c-0": starting}


def view(a: ExchangeProgress | None = A, b: ExchangeProgress | None = B) -> RunView:
    return RunView(24, 100, nodes(a, b))


def shown(renderable: object, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summary(views: dict[str, NodeView]) -> Summary:
    run = figures(state({"a": 1.0, "b": 0.5}, steps=6, unit_steps=1))
    ends = [End(name, f"{name}-abc123", 0, "") for name in views]
    return Summary(run, ends, views, Exit.OK, Path("runs/here"), "s3://bucket/runs/first/", [])


def test_totals_are_those_of_the_nodes_that_have_joined() -> None:
    assert Exchanged.of(nodes().values()) == Exchanged(
        lowest_version=5,
        highest_version=7,
        merged=15,
        missed=1,
        mean_staleness_steps=2.5,
        sent_bytes=1_250_000,
        received_bytes=640_000,
        refused=1,
        blocked_seconds=0.5,
    )


def test_a_run_without_an_exchange_has_none() -> None:
    assert Exchanged.of(nodes(None, None).values()) is None
    assert Exchanged.of(nodes(ExchangeProgress(), None).values()) is None, "nothing is known while a node joins"


def test_before_the_first_adoption_there_is_no_staleness() -> None:
    totals = Exchanged.of([node("a-0", ExchangeProgress(versions=(0, 0)))])
    assert totals is not None
    assert totals.line == "version 0, mean staleness - steps, 0 B sent, 0 B received"


def test_the_screen_has_a_line_and_on_a_wide_terminal_each_nodes_columns() -> None:
    narrow, wide = (shown(live_view("demo", view(), 12.0, rows=10, wide=wide)) for wide in (False, True))
    assert f"exchange: {LINE}" in narrow
    assert f"exchange: {LINE}" in wide
    assert "version" not in narrow.split("exchange:")[0]
    rows = {line.split()[0]: line.split()[-6:] for line in wide.splitlines() if line[1:3] == "-0"}
    assert rows == {
        "a-0": ["6", "5", "1.25", "MB", "640", "kB"],
        "b-0": ["5", "1", "0", "B", "0", "B"],
        "c-0": ["-", "-", "-", "-", "-", "-"],
    }


def test_a_wide_screen_fits_its_width() -> None:
    text = shown(live_view("demo", view(), 12.0, rows=10, wide=True), width=120)
    assert "received" in text
    assert "…" not in text


def test_without_an_exchange_the_screen_says_nothing_of_it() -> None:
    assert "exchange" not in shown(live_view("demo", view(None, None), 12.0, rows=10, wide=True))
    assert "version" not in shown(live_view("demo", view(None, None), 12.0, rows=10, wide=True))


def test_a_plain_line_ends_with_it() -> None:
    assert plain_line(view()).endswith(f" | {LINE}")


def test_the_final_model_is_the_one_of_most_samples() -> None:
    early = replace(A, final_samples=640, final_held_out_loss=3.0)
    late = replace(B, final_samples=1280, final_held_out_loss=2.5)
    assert FinalModel.of(nodes(early, late).values()) == FinalModel("b-0", 1280, 2.5)
    assert FinalModel.of(nodes().values()) is None


def test_the_summary_names_the_final_model_and_its_loss() -> None:
    done = summary(nodes(A, replace(B, final_samples=1280, final_held_out_loss=2.5)))
    lines = shown(summary_text(done)).splitlines()
    assert f"exchange    {LINE}" in lines
    assert "model       s3://bucket/runs/first/model/final.safetensors: held-out loss 2.5000, 1,280 tokens" in lines
    assert done.to_dict()["final_model"] == {
        "node": "b-0",
        "samples": 1280,
        "held_out_loss": 2.5,
        "url": "s3://bucket/runs/first/model/final.safetensors",
    }
    assert done.to_dict()["exchange"]["highest_version"] == 7


def test_the_summary_of_a_task_without_evaluation_names_no_loss() -> None:
    lines = shown(summary_text(summary(nodes(A, replace(B, final_samples=1280))))).splitlines()
    assert "model       s3://bucket/runs/first/model/final.safetensors: 1,280 tokens" in lines


def test_the_summary_says_how_to_get_a_model_that_nobody_has_written() -> None:
    text = shown(summary_text(summary(nodes())))
    assert "no node here has written a final one" in text
    assert "`gradientmail export runs/here FILE.safetensors`" in text
    assert summary(nodes()).to_dict()["final_model"] is None


def test_the_summary_of_a_run_without_an_exchange_says_nothing_of_it() -> None:
    done = summary(nodes(None, None))
    assert "model " not in shown(summary_text(done))
    assert (done.to_dict()["exchange"], done.to_dict()["final_model"]) == (None, None)
