"""The bounded buffer between the thread that loads and the loop that trains."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

BatchT = TypeVar("BatchT")


@dataclass(slots=True)
class Delivery:
    """One claimed unit on its way through the buffer. Times are seconds since the epoch."""

    identifier: str
    claimed: float
    started: float | None = None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class _Loaded(Generic[BatchT]):
    delivery: Delivery
    batch: BatchT


class Buffer(Generic[BatchT]):
    """Batches in order, each followed by its unit's end; at most `capacity` batches at any time.

    One thread puts, one takes. Ends of units take no room. `ended` is called on the taking
    thread, once the batch after a unit's last one is asked for.
    """

    def __init__(
        self, capacity: int, ended: Callable[[Delivery], None], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._capacity = capacity
        self._ended = ended
        self._clock = clock
        self._changed = threading.Condition()
        self._entries: deque[_Loaded[BatchT] | Delivery] = deque()
        self._failure: BaseException | None = None
        self._closed = False
        self._stopped = False
        self._in_use: Delivery | None = None
        self.buffered = 0
        self.taken = 0
        self._waited = 0.0
        self._waiting_since: float | None = None

    @property
    def stopped(self) -> bool:
        """Whether no further batch will be taken."""
        return self._stopped

    @property
    def in_use(self) -> Delivery | None:
        """The unit of the batch that the loop holds."""
        return self._in_use

    @property
    def wait_seconds(self) -> float:
        """Time that the loop has waited for an entry, the wait under way included. Never falls."""
        with self._changed:
            since = self._waiting_since
            return self._waited + (0.0 if since is None else time.perf_counter() - since)

    def wait_for_room(self) -> bool:
        """Block while the buffer is full. False if it was stopped."""
        return self._wait_until(lambda: self.buffered < self._capacity)

    def wait_until_left(self, batches: int) -> bool:
        """Block while more batches than this are buffered or in use. False if it was stopped."""
        return self._wait_until(lambda: self.buffered + (self._in_use is not None) <= batches)

    def pause(self, seconds: float) -> bool:
        """Block for some time; True as soon as the buffer is stopped."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped, seconds)

    def put(self, delivery: Delivery, batch: BatchT) -> None:
        """Add a batch. The caller has waited for room."""
        with self._changed:
            self._entries.append(_Loaded(delivery, batch))
            self.buffered += 1
            self._changed.notify_all()

    def end(self, delivery: Delivery) -> None:
        """Add the end of a unit."""
        with self._changed:
            self._entries.append(delivery)
            self._changed.notify_all()

    def close(self, failure: BaseException | None = None) -> None:
        """Nothing more will be put. A failure is raised once everything before it has been taken."""
        with self._changed:
            self._closed = True
            self._failure = failure
            self._changed.notify_all()

    def stop(self) -> None:
        """No further batch will be taken. Safe in a signal handler."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(self) -> BatchT:
        """Block until there is a batch. Raises StopIteration after the last one, or the failure."""
        with self._changed:
            self._in_use = None
            self._changed.notify_all()
            while True:
                self._take_ends()
                if self._stopped:
                    raise StopIteration
                if self._entries:
                    return self._taken(self._entries.popleft())
                if self._closed:
                    self._raise_failure()
                self._wait_for_entry()

    def drop(self) -> BaseException | None:
        """Let go of what is buffered; return a failure that nobody has been told of."""
        with self._changed:
            self._entries.clear()
            self.buffered = 0
            failure, self._failure = self._failure, None
            return failure

    def _taken(self, entry: _Loaded[BatchT] | Delivery) -> BatchT:
        assert isinstance(entry, _Loaded)
        if entry.delivery.started is None:
            entry.delivery.started = self._clock()
        entry.delivery.batches += 1
        self._in_use = entry.delivery
        self.buffered -= 1
        self.taken += 1
        self._changed.notify_all()
        return entry.batch

    def _take_ends(self) -> None:
        while self._entries and isinstance(self._entries[0], Delivery):
            delivery = self._entries[0]
            self._entries.popleft()
            self._ended(delivery)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        raise failure or StopIteration

    def _wait_for_entry(self) -> None:
        self._waiting_since = start = time.perf_counter()
        try:
            self._changed.wait()
        finally:
            self._waited += time.perf_counter() - start
            self._waiting_since = None

    def _wait_until(self, ready: Callable[[], bool]) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or ready())
            return not self._stopped
