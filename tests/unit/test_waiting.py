"""How tests wait: for what is not there yet, and no longer than said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.harness.waiting import until as until_on_cluster
from tests.waiting import until

EMPTY: dict[str, Any] = {}


def test_a_field_that_is_not_written_yet_is_waited_for() -> None:
    answers: Iterator[dict[str, Any]] = iter([{}, {"nodes": []}, {"nodes": [{"phase": "Running"}]}])
    assert until_on_cluster(lambda: next(answers)["nodes"][0]["phase"] == "Running", "a node that runs", 10)


def test_what_was_missing_is_said_when_the_time_is_over() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s for a count \(KeyError\('count'\)\); seen last: nothing yet"):
        until_on_cluster(lambda: EMPTY["count"], "a count", 0, lambda: "nothing yet")


def test_an_error_that_is_not_waiting_ends_the_wait() -> None:
    with pytest.raises(KeyError):
        until(lambda: EMPTY["count"])


def test_something_may_be_done_meanwhile() -> None:
    steps: list[int] = []
    assert until(lambda: len(steps) == 3, meanwhile=lambda: steps.append(1))
