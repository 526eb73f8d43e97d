"""Log lines, and what a node writes when it leaves."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
import torch

from gradientmail.patterns.shared_queue import QueueStatistics
from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.training.account import Account
from gradientmail.training.farewell import LastWords, termination_message, write_termination_message
from gradientmail.training.logs import LogFormat, emit, logging_to
from gradientmail.training.loop import Trained
from gradientmail.training.reporting import Everyone, Mark, Reporter, UnitLines, step_line

CPU = torch.device("cpu")


def trained(step: int = 120, loss: float = 3.21014) -> Trained:
    return Trained(step, torch.tensor(loss), 6e-4, 512)


def test_step_line() -> None:
    line = step_line(trained(), 3.21014, Mark(10.0, 1000, 1.0), Mark(12.0, 25_691, 1.5))
    assert line == "step:   120  loss:  3.2101  lr: 6.0000e-04  tps: 12,346  wait: 25.0%"


def reported(form: LogFormat) -> list[str]:
    stream = io.StringIO()
    now = iter(range(100))
    with logging_to(stream, form, "a-0") as always:
        always["run"] = "first"
        account = Account("l", "a-0", clock=lambda: 1000.0)
        account.queue = lambda: QueueStatistics(claimed=2)
        reporter = Reporter(account, form, CPU, clock=lambda: float(next(now)))
        account.trained(step=120, samples=512)
        reporter.step(trained())
        lines = UnitLines(account)
        lines.claimed("000000-0.json", 0.0123)
        lines.lost("000000-1.json")
        lines.loaded("000000-0.json", 20, 0.5)
        Everyone([lines, lines]).consumed("000000-0.json")
    return stream.getvalue().splitlines()


def test_text_lines_name_the_node_and_the_time() -> None:
    lines = reported("text")
    assert re.fullmatch(r"\[a-0\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - INFO - step:   120 .*tps: 512 .*", lines[0])
    assert [line.partition(" - INFO - ")[2] for line in lines[1:]] == [
        "claimed 000000-0.json in 12 ms",
        "consumed 000000-0.json",
        "consumed 000000-0.json",
    ]


def test_json_lines_carry_progress_and_units() -> None:
    step, claimed, *consumed = [json.loads(line) for line in reported("json")]
    assert step["event"] == "progress"
    assert step["level"] == "info"
    assert step["message"].startswith("step:   120  loss:  3.2101")
    assert NodeProgress(**step["progress"]) == NodeProgress(
        "l", "a-0", time=1000.0, claimed=2, batches=1, samples=512, step=120, loss=torch.tensor(3.21014).item()
    )
    assert step["step"] == 120
    assert {name: claimed[name] for name in ("event", "unit", "seconds")} == {
        "event": "unit-claimed",
        "unit": "000000-0.json",
        "seconds": 0.0123,
    }
    assert [(each["event"], each["unit"], each["step"]) for each in consumed] == [
        ("unit-consumed", "000000-0.json", 120)
    ] * 2
    assert {(line["run"], line["node"]) for line in (step, claimed, *consumed)} == {("first", "a-0")}


def test_json_progress_comes_every_second_and_not_twice() -> None:
    stream = io.StringIO()
    now = [0.0]
    with logging_to(stream, "json", "a-0"):
        reporter = Reporter(Account("l", "a-0"), "json", CPU, clock=lambda: now[0])
        for now[0] in (0.0, 0.5, 1.0, 1.2, 2.0):
            reporter.tick()
    assert len(stream.getvalue().splitlines()) == 3


def test_text_has_no_lines_between_steps() -> None:
    stream = io.StringIO()
    with logging_to(stream, "text", "a-0"):
        Reporter(Account("l", "a-0"), "text", CPU).tick()
    assert stream.getvalue() == ""


def test_loss_that_is_not_a_number_is_warned_of() -> None:
    stream = io.StringIO()
    with logging_to(stream, "text", "a-0"):
        Reporter(Account("l", "a-0"), "text", CPU).step(trained(loss=float("nan")))
    assert "WARNING - the loss is nan at dataset step 120" in stream.getvalue()


def test_failure_has_its_traceback_in_one_json_line() -> None:
    stream = io.StringIO()
    with logging_to(stream, "json", "a-0"):
        with pytest.raises(KeyError) as raised:
            _ = dict[str, str]()["lost"]
        emit("failed", "KeyError: 'lost'", logging.ERROR, error=raised.value)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["message"]) == ("failed", "error", "KeyError: 'lost'")
    assert line["traceback"].endswith("KeyError: 'lost'")


def test_json_keeps_what_others_print_off_its_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(sys.stdout, "json", "a-0"):
        print("from the task")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "from the task\n")


def test_logging_is_as_before_afterwards() -> None:
    root = logging.getLogger("gradientmail")
    before = root.level, root.propagate, list(root.handlers), sys.stdout
    with logging_to(io.StringIO(), "json", "a-0"):
        pass
    assert (root.level, root.propagate, list(root.handlers), sys.stdout) == before


@pytest.mark.parametrize("message", ["short", "x" * 9000, "ä" * 5000, '"' * 5000, "€" * 4096])
def test_termination_message_fits_and_can_be_read(message: str) -> None:
    text = termination_message(NodeProgress("l", "a-0", message=message))
    assert len(text) <= 4096
    kept = NodeProgress.from_json(text).message
    assert message.startswith(kept.removesuffix("…"))
    assert len(message) < 100 or len(text) > 3000


def test_termination_message_of_many_fragments_leaves_their_versions_out() -> None:
    exchange = ExchangeProgress(merged=3, versions=(1_000_000,) * 1000)
    kept = NodeProgress.from_json(termination_message(NodeProgress("l", "a-0", message="why", exchange=exchange)))
    assert kept == NodeProgress("l", "a-0", message="why", exchange=ExchangeProgress(merged=3))


def test_termination_message_is_written_in_place_and_never_longer_than_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 5000)
    node = path.stat().st_ino
    for words in ("a long message", "short", "x" * 9000, ""):
        write_termination_message(path, NodeProgress("l", "a-0", message=words))
        text = path.read_bytes()
        assert len(text) <= 4096
        assert words.startswith(NodeProgress.from_json(text).message.removesuffix("…"))
        assert path.stat().st_ino == node


def test_last_words_are_up_to_date_after_every_claim_and_receipt(tmp_path: Path) -> None:
    path = tmp_path / "log"
    progress = [NodeProgress("l", "a-0")]
    words = LastWords(path, lambda: progress[-1])
    for claimed, consumed in ((1, 0), (2, 0), (2, 1)):
        progress.append(NodeProgress("l", "a-0", phase="training", claimed=claimed, consumed=consumed))
        if consumed:
            words.consumed("000000-0.json")
        else:
            words.claimed("000000-0.json", 0.1)
        assert NodeProgress.from_json(path.read_bytes()) == progress[-1]
    words.lost("000000-1.json")
    words.loaded("000000-0.json", 20, 1.0)
    LastWords(None, lambda: progress[-1]).claimed("000000-0.json", 0.1)


def test_termination_message_that_cannot_be_written_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_termination_message(tmp_path / "none" / "log", NodeProgress("l", "a-0"))
    assert "the termination message could not be written" in caplog.text
