import json
import math

import pytest

from gradientmail.local.watching import LAST_WORDS, NodeView, RunView
from gradientmail.progress import NodeProgress

NODE = NodeView("a-0", "a-0-0000aa")


def progress(**fields: object) -> str:
    word = NodeProgress("a-0-0000aa", "a-0", **fields)  # type: ignore[arg-type]
    return json.dumps(
        {"time": 1.0, "level": "info", "event": "progress", "message": "", "progress": json.loads(word.to_json())}
    )


def after(*lines: str) -> NodeView:
    view = NODE
    for line in lines:
        view = view.after(line)
    return view


def test_progress_is_taken_over_and_rates_are_those_between_two_lines() -> None:
    view = after(
        progress(time=100.0, phase="training", consumed=1, batches=20, samples=2000, wait_seconds=1.0),
        progress(time=104.0, phase="training", consumed=3, batches=60, samples=6000, wait_seconds=2.0),
    )
    assert (view.consumed, view.batches) == (3, 60)
    assert view.batches_per_second == pytest.approx(10.0)
    assert view.tokens_per_second == pytest.approx(1000.0)
    assert view.waiting == pytest.approx(0.25)


def test_a_node_that_has_ended_says_how_and_no_longer_counts_in_the_time_left() -> None:
    view = RunView(10, 200, {"a-0": NODE})
    for time in (0.0, 10.0):
        view = view.after("a-0", progress(time=time, phase="training", batches=int(time)))
    assert view.nodes["a-0"].phase == "training"
    assert view.seconds_left == pytest.approx(190.0)
    assert view.ended("a-0", "killed").nodes["a-0"].phase == "killed"
    assert view.ended("a-0", "killed").seconds_left is None


def test_before_two_lines_there_are_no_rates() -> None:
    assert after(progress(time=100.0)).batches_per_second is None
    assert after(progress(time=100.0), progress(time=100.0)).waiting is None


def test_what_is_older_than_the_window_no_longer_counts() -> None:
    view = after(*(progress(time=float(time), batches=0 if time < 100 else (time - 100) * 2) for time in range(131)))
    assert view.batches_per_second == pytest.approx(2.0)
    assert len(view.marks) == 16


def test_held_out_losses_are_kept_from_first_to_last() -> None:
    lines = [json.dumps({"event": "held-out", "message": "", "loss": loss}) for loss in (5.5, 4.0, 3.25)]
    view = after(*lines)
    assert (view.first_held_out, view.last_held_out) == (5.5, 3.25)


@pytest.mark.parametrize(("told", "last"), [("Infinity", math.inf), ("much", 5.5)])
def test_a_held_out_loss_that_has_diverged_is_news(told: str, last: float) -> None:
    view = after(*(json.dumps({"event": "held-out", "message": "", "loss": loss}) for loss in (5.5, told)))
    assert (view.first_held_out, view.last_held_out) == (5.5, last)


def test_plain_text_and_tracebacks_are_kept_as_last_words_up_to_a_limit() -> None:
    view = after("hello", "", json.dumps({"event": "failed", "message": "x", "traceback": "Traceback:\n  boom"}))
    assert view.last_words == ("hello", "Traceback:", "  boom")
    assert after(*map(str, range(100))).last_words == tuple(map(str, range(100 - LAST_WORDS, 100)))


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"event":"progress","progress":{"x":1}}', '{"event":"held-out","loss":null}', '{"a":1}', "\x00"],
)
def test_lines_of_any_kind_are_survived(line: str) -> None:
    assert after(line).progress is None


def test_time_left_is_batches_left_over_the_rate_of_nodes_that_train() -> None:
    view = RunView(10, 200, {name: NodeView(name, f"{name}-x") for name in ("a-0", "b-0")})
    assert view.seconds_left is None
    for time in (0.0, 10.0):
        view = view.after("a-0", progress(time=time, phase="training", consumed=int(time) // 5, batches=10 * int(time)))
        view = view.after("b-0", progress(time=time, phase="finished", batches=2 * int(time)))
    assert view.consumed == 2
    assert view.seconds_left == pytest.approx((200 - 100 - 20) / 10.0)
