"""A queue of keys to work on: each once, one worker per key, later keys when they are due.

As the work queues of Kubernetes' own controllers: a key added while it is being worked on is
worked on once more after that; a key whose work fails comes back after a time that doubles.
For one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


class Later(Exception):
    """Raised by a worker: try again, after `seconds` if given, else after the usual back-off."""

    def __init__(self, words: str, seconds: float | None = None) -> None:
        super().__init__(words)
        self.seconds = seconds


class WorkQueue(Generic[Key]):
    """Keys, and when they are due. `clock` is in seconds, steady."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._working: dict[Key, float] = {}
        self._again: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, seconds: float = 0.0) -> None:
        """Have a key worked on in so many seconds, or earlier where it is due earlier. Never blocks."""
        due, waiting = self._clock() + seconds, self._again if key in self._working else self._due
        waiting[key] = min(due, waiting.get(key, due))
        self._changed.set()

    def waited(self) -> float:
        """Return for how many seconds the key longest overdue, or longest in work, has been so."""
        now = self._clock()
        return max([now - since for since in (*self._due.values(), *self._working.values())], default=0.0)

    def __len__(self) -> int:
        return len(self._due) + len(self._working)

    async def serve(self, work: Callable[[Key], Awaitable[float | None]], workers: int) -> None:
        """Work on keys as they fall due, on so many at a time, until cancelled.

        `work` returns in how many seconds to work on the key again, or None for when it is added.
        """
        async with asyncio.TaskGroup() as group:
            turns = asyncio.Semaphore(workers)
            while True:
                await turns.acquire()
                key = await self._next()
                task = group.create_task(self._work(key, work), name=f"reconcile {key}")
                task.add_done_callback(lambda _: turns.release())

    async def _next(self) -> Key:
        while True:
            self._changed.clear()
            now = self._clock()
            key, due = min(self._due.items(), key=lambda item: item[1], default=(None, None))
            if key is not None and due is not None and due <= now:
                del self._due[key]
                self._working[key] = now
                return key
            await self._wait(None if due is None else due - now)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _work(self, key: Key, work: Callable[[Key], Awaitable[float | None]]) -> None:
        seconds: float | None
        try:
            seconds = await work(key)
            self._failures.pop(key, None)
        except Later as later:
            seconds = self._backoff(key) if later.seconds is None else later.seconds
            logger.info("%s: again in %.0f s: %s", key, seconds, later)
        except Exception:
            seconds = self._backoff(key)
            logger.exception("%s: again in %.0f s after an error", key, seconds)
        finally:
            del self._working[key]
        if key in self._again:
            self._due[key] = self._again.pop(key)
        if seconds is not None:
            self.add(key, seconds)
        self._changed.set()

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
