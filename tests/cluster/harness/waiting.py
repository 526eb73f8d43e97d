"""Waiting for a condition: bounded, and with words for what was seen instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.cluster.harness.api import Unreachable

POLL_SECONDS = 0.2

Found = TypeVar("Found")


def until(ask: Callable[[], Found | None], what: str, seconds: float, seen: Callable[[], object] = lambda: "") -> Found:
    """Ask until there is an answer that is true, and return it. Fails after `seconds`, saying what was seen last.

    An API server that does not answer is asked again.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = _answer(ask)
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}; seen last: {_answer(seen)}")
        time.sleep(POLL_SECONDS)


def _answer(ask: Callable[[], Found]) -> Found | None:
    try:
        return ask()
    except Unreachable:
        return None


def stays(holds: Callable[[], bool], what: str, seconds: float, seen: Callable[[], object] = lambda: "") -> None:
    """Fail as soon as a condition that should hold for `seconds` does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds(), f"{what} did not hold: {seen()}"
        time.sleep(POLL_SECONDS)
