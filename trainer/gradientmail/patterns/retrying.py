"""Patience with a store that does not answer."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from gradientmail.mailbox.errors import MailboxUnavailable

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class Stopped(Exception):
    """The wait was given up because the queue is being left."""


class Patience:
    """Repeats a request while the store is unavailable, for at most `limit_seconds` per outage.

    Pauses double up to five seconds and are jittered, so that nodes do not come back all at
    once. `pause(seconds)` waits and returns True if the caller should give up at once.
    """

    def __init__(
        self,
        limit_seconds: float,
        pause: Callable[[float], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.limit_seconds = limit_seconds
        self._pause = pause
        self._clock = clock
        self._jitter = jitter

    def call(self, request: Callable[[], Result]) -> Result:
        """Return the request's answer.

        Raises Stopped if the pause was cut short, MailboxUnavailable once the store has not
        answered for `limit_seconds`, and at once whatever else the request raises.
        """
        since: float | None = None
        longest = FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = request()
            except MailboxUnavailable as error:
                now = self._clock()
                if since is None:
                    since = now
                    logger.warning("the store does not answer, trying again%s: %s", self._until(), error)
                left = self.limit_seconds - (now - since)
                if left <= 0:
                    raise MailboxUnavailable(
                        f"the store has not answered for {now - since:.0f} s (the limit is {self.limit_seconds:g} s); "
                        f"last error: {error}"
                    ) from error
            else:
                if since is not None:
                    logger.info("the store answers again after %.1f s", self._clock() - since)
                return answer
            if self._pause(min(left, longest * (0.5 + self._jitter() / 2))):
                raise Stopped
            longest = min(longest * 2, LONGEST_PAUSE_SECONDS)

    def _until(self) -> str:
        return "" if math.isinf(self.limit_seconds) else f" for up to {self.limit_seconds:g} s"
