"""The nodes' processes: started, read, stopped, and never left behind.

Each child has a session of its own, so that Ctrl-C at the terminal reaches this process alone, which
then asks the children to leave, once. Each holds a leash (see gradientmail.leash): should this process
be killed, the children leave by themselves. A child's output, standard error included, is read by one
thread, which writes it to the node's log and hands each line on through a bounded queue.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, BinaryIO, Self

from gradientmail.exits import Exit
from gradientmail.local.plan import NodePlan

MOST_LINES = 10_000
"""Lines waiting to be looked at; a child that writes faster waits."""
LONGEST_LINE = 1 << 16
JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a node's output."""

    node: str
    text: str


class Child:
    """One node's process."""

    def __init__(self, plan: NodePlan, lines: queue.Queue[Line], closing: threading.Event) -> None:
        self.plan = plan
        self._lines = lines
        self._closing = closing
        self._asked = False
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and the program is this very Python
            plan.arguments,
            env=dict(plan.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"reader {plan.node}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code, minus the signal's number if a signal ended it, None while it runs.

        A node asked to leave may not hear signals yet, or no longer, and ends by the very signal: it has left.
        """
        code = self._process.poll()
        return Exit.TERMINATED if self._asked and code == -signal.SIGTERM else code

    @property
    def silent(self) -> bool:
        """Whether all its output has been read."""
        return not self._reader.is_alive()

    def ask_to_leave(self) -> None:
        """Send SIGTERM if it runs."""
        if self.code is None:
            self._asked = True
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to it, and to what it has started, if it runs."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for the end of a child that has been killed or has ended; close its pipes."""
        self._process.wait()
        self._reader.join(JOIN_SECONDS)
        if self._process.stdin:
            self._process.stdin.close()
        if self._process.stdout and self.silent:
            self._process.stdout.close()

    def _read(self) -> None:
        output = self._process.stdout
        assert output is not None
        with _log(self.plan) as log:
            for line in iter(lambda: output.readline(LONGEST_LINE), b""):
                _append(log, line)
                self._hand_on(Line(self.plan.node, line.decode(errors="replace").rstrip("\n")))

    def _hand_on(self, line: Line) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=0.2)
                return


class Children:
    """A context manager that starts the nodes; leaving it kills those that still run."""

    def __init__(self, plans: Sequence[NodePlan]) -> None:
        self._plans = plans
        self._lines: queue.Queue[Line] = queue.Queue(MOST_LINES)
        self._closing = threading.Event()
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        try:
            for plan in self._plans:
                self._children.append(Child(plan, self._lines, self._closing))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __iter__(self) -> Iterator[Child]:
        return iter(self._children)

    @property
    def running(self) -> bool:
        """Whether any node still runs."""
        return any(child.code is None for child in self._children)

    @property
    def silent(self) -> bool:
        """Whether all output has been read and looked at."""
        # In this order: no line comes once all are silent.
        return all(child.silent for child in self._children) and self._lines.empty()

    def lines(self, timeout: float) -> Iterator[Line]:
        """Yield the lines that are there; wait up to `timeout` seconds for the first."""
        with contextlib.suppress(queue.Empty):
            yield self._lines.get(timeout=timeout)
            for _ in range(MOST_LINES):
                yield self._lines.get_nowait()

    def ask_to_leave(self) -> None:
        """Send SIGTERM to each node that runs."""
        for child in self._children:
            child.ask_to_leave()

    def kill(self) -> None:
        """Send SIGKILL to each node that runs."""
        for child in self._children:
            child.kill()

    def _close(self) -> None:
        self._closing.set()
        self.kill()
        for child in self._children:
            child.close()


@contextlib.contextmanager
def _log(plan: NodePlan) -> Iterator[BinaryIO | None]:
    """Open the node's log; a node goes on without one if the disk is full or not writable."""
    try:
        file: IO[bytes] = plan.log.open("ab", buffering=0)
    except OSError:
        yield None
        return
    with file:
        yield file  # type: ignore[misc]


def _append(log: BinaryIO | None, line: bytes) -> None:
    if log is not None:
        with contextlib.suppress(OSError):
            log.write(line)
