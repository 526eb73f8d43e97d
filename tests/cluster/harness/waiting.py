"""Waiting on a cluster, which is slower to ask, and which may not have written yet what is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests import waiting
from tests.cluster.harness.api import Unreachable
from tests.waiting import Found

POLL_SECONDS = 0.2
BUSY = 3.0
"""Waits give up after so many times what a quiet machine needs."""


def until(
    ask: Callable[[], Found | None], what: str, seconds: float, seen: Callable[[], object] | None = None
) -> Found:
    """Ask until there is an answer that is true, and return it. Fails saying what was seen last.

    `seconds` are ample on a quiet machine; it is BUSY times as long.
    Where a field or an item is not there yet, or the API server does not answer, it is asked again.
    """
    return waiting.until(
        ask, what, BUSY * seconds, seen=seen, every_seconds=POLL_SECONDS, not_yet=(LookupError, Unreachable)
    )


def stays(holds: Callable[[], bool], what: str, seconds: float, seen: Callable[[], object] = lambda: "") -> None:
    """Fail as soon as a condition that should hold for `seconds` does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds(), f"{what} did not hold: {seen()}"
        time.sleep(POLL_SECONDS)
