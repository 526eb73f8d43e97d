"""Settings from environment and command line, and sentences for what will not do."""

from __future__ import annotations

import json
import logging
from contextvars import copy_context

import pytest

from gradientrun.logs import ABOUT, FewerRepeats, JsonFormatter
from gradientrun.settings import Settings, read_settings


def test_the_defaults() -> None:
    assert read_settings([], {}) == Settings()


def test_the_environment_and_the_command_line_which_beats_it() -> None:
    environment = {
        "GRADIENTRUN_WATCH_NAMESPACES": "a, b,a,",
        "GRADIENTRUN_METRICS_PORT": "9000",
        "GRADIENTRUN_RESYNC_SECONDS": "60",
        "GRADIENTRUN_LOG_FORMAT": "text",
        "GRADIENTRUN_LOG_LEVEL": "debug",
    }
    assert read_settings(["--metrics-port", "9001"], environment) == Settings(
        namespaces=("a", "b"), metrics_port=9001, resync_seconds=60, log_format="text", log_level="debug"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics-port", "x"], "metrics-port is 'x': give a number from 1 to 65535"),
        (["--metrics-port", "70000"], "metrics-port is '70000': give a number from 1 to 65535"),
        (["--resync-seconds", "0"], "resync-seconds is '0': give a number from 1 to 86400"),
        (["--log-level", "loud"], "log-level is 'loud': give one of debug, info, warning, error"),
        (["--watch-namespaces", "a,B"], "watch-namespaces has 'B': give names of namespaces, separated by commas"),
    ],
)
def test_what_will_not_do_is_said_in_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_settings(arguments, {})
    assert str(caught.value) == sentence


def test_a_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("gradientrun", logging.WARNING, __file__, 1, "two\nlines of %s", ("text",), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) | {"time": ""} == {
        "time": "", "level": "warning", "logger": "gradientrun", "message": "two\nlines of text",
    }  # fmt: skip


def test_a_log_line_names_the_run_at_hand_and_the_node() -> None:
    fields = {"reason": "NodeRestarted", "node": "fast-0"}
    record = logging.makeLogRecord({"name": "gradientrun", "levelname": "INFO", "msg": "words", "fields": fields})
    context = copy_context()
    context.run(ABOUT.set, ("team", "first"))
    about_a_run = json.loads(context.run(JsonFormatter().format, record))
    assert {name: about_a_run[name] for name in ("namespace", "run", "node", "reason")} == {
        "namespace": "team", "run": "first", "node": "fast-0", "reason": "NodeRestarted",
    }  # fmt: skip
    assert "run" not in json.loads(JsonFormatter().format(record))


@pytest.mark.parametrize(("attempt", "told"), [(1, False), (2, True), (3, False), (10, True), (11, False), (20, True)])
def test_an_outage_is_told_in_a_few_short_lines(attempt: int, told: bool) -> None:
    words = (
        f"Request attempt #{attempt} failed; will retry: "
        "GET https://10.0.0.1:6443/api/v1/namespaces/team/pods?watch=true&resourceVersion=894 -> refused"
    )
    record = logging.LogRecord("kopf", logging.ERROR, __file__, 1, words, None, None)
    assert FewerRepeats().filter(record) == told
    assert record.getMessage() == f"GET /api/v1/namespaces/team/pods: attempt {attempt} failed: refused"


def test_other_lines_are_left_as_they_are() -> None:
    record = logging.LogRecord(
        "kopf", logging.ERROR, __file__, 1, "Request attempt #9 failed; escalating: x", None, None
    )
    assert FewerRepeats().filter(record)
    assert record.getMessage() == "Request attempt #9 failed; escalating: x"
