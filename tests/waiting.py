"""Waiting for a condition: bounded, and with words for what was seen instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.002
LIMIT_SECONDS = 60.0

Found = TypeVar("Found")


def until(
    ask: Callable[[], Found | None],
    what: str = "the condition",
    seconds: float = LIMIT_SECONDS,
    *,
    meanwhile: Callable[[], object] | None = None,
    seen: Callable[[], object] | None = None,
    every_seconds: float = POLL_SECONDS,
    not_yet: tuple[type[Exception], ...] = (),
) -> Found:
    """Ask until there is an answer that is true, and return it; `meanwhile` is called after each that is not.

    An error of the kinds `not_yet` is no answer. Raises AssertionError after `seconds`, with what was seen last.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline
        try:
            if answer := ask():
                return answer
            missed = ""
        except not_yet as error:
            missed = f" ({error!r})"
        assert not late, f"waited {seconds:.0f} s for {what}{missed}{_told(seen, not_yet)}"
        if meanwhile:
            meanwhile()
        time.sleep(every_seconds)


def _told(seen: Callable[[], object] | None, not_yet: tuple[type[Exception], ...]) -> str:
    if seen is None:
        return ""
    try:
        return f"; seen last: {seen()}"
    except not_yet as error:
        return f"; seen last: {error!r}"
