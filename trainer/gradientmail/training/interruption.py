"""SIGTERM and SIGINT: the first asks the node to leave in good order, the second ends it at once.

The C-level handler writes the signal's number to a pipe, and a thread of its own acts on it. So a
signal is acted on while the main thread is deep in a kernel launch or a matrix product, and nothing
runs in the middle of the main thread's own code. Works as process 1 of a container, for which the
kernel ignores signals left to their default.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CLOSE = 0


class Interruption:
    """A context manager, entered on the main thread, within which a node can be asked to leave.

    `stopping` is set by the first signal. After a second one, or if the block has not been left
    within `grace_seconds` of the first, the process ends at once with 128 plus the signal's number.
    """

    def __init__(self, grace_seconds: float, *, leave: Callable[[int], object] = os._exit) -> None:
        self.stopping = threading.Event()
        self.signal: signal.Signals | None = None
        self._grace_seconds = grace_seconds
        self._leave = leave
        self._on_stop: list[Callable[[], object]] = []
        self._overdue: Callable[[str], object] = lambda _: None
        self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal that came."""
        return 128 + self.signal if self.signal else 0

    def on_stop(self, call: Callable[[], object]) -> None:
        """Call this once, on the thread that acts on signals, when the node is to stop; at once if it is already."""
        self._on_stop.append(call)
        if self.stopping.is_set():
            call()

    def on_overdue(self, call: Callable[[str], object]) -> None:
        """Call this with a sentence right before the process is ended, after a second signal or the grace time."""
        self._overdue = call

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old_handlers = [signal.signal(number, _nothing) for number in SIGNALS]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(SIGNALS, self._old_handlers, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.write(self._write, bytes([CLOSE]))
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        first = self._next(None)
        if first == CLOSE or first is None:
            return
        self.signal = signal.Signals(first)
        self.stopping.set()
        for call in list(self._on_stop):
            call()
        second = self._next(self._grace_seconds)
        if second == CLOSE:
            return
        why = "a second signal" if second else f"{self._grace_seconds:g} s without an end to the current batch"
        self._overdue(f"left at once after {self.signal.name} and {why}; receipts may be missing")
        self._leave(self.exit_code)

    def _next(self, timeout: float | None) -> int | None:
        """Return the next signal that matters here, CLOSE, or None if there was none in time."""
        while select.select([self._read], [], [], timeout)[0]:
            number = os.read(self._read, 1)[0]
            if number == CLOSE or number in SIGNALS:
                return number
        return None


def _nothing(number: int, frame: FrameType | None) -> None:
    """Python needs a handler, or the signal would not be written to the pipe."""
