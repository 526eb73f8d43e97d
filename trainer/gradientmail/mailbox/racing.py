"""Races for keys: many writers, one key at a time, all let go at once.

Writers are threads, each with connections of its own, spread over processes where the store reaches across
them. Every wait is bounded. Processes are spawned, so a script that calls this needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from gradientmail.mailbox.base import Store
from gradientmail.mailbox.errors import MailboxError, MailboxUnavailable

MEETING_SECONDS = 120.0
"""How long a writer waits for the others before each key: the first time, for their processes to start."""


class Meeting(Protocol):
    """A barrier between threads or between processes."""

    def wait(self, timeout: float | None = None) -> int:
        """Block until all have come, or raise BrokenBarrierError."""
        ...

    def abort(self) -> None:
        """Let nobody wait any longer."""
        ...


@dataclass(frozen=True)
class Attempt:
    """What one writer was told about one key."""

    key: str
    writer: int
    created: bool | None
    """put_if_absent's answer; None if it raised."""
    seen: bytes | None
    """What the writer read right afterwards; None if there was nothing, or the read raised."""
    error: str = ""
    conflicts: int = 0
    """409 answers to the writer so far."""


@dataclass(frozen=True)
class Verdict:
    """What the attempts say about the store."""

    judged: int
    """Keys at which at least two writers were answered; fewer than that make no race."""
    several_winners: tuple[str, ...]
    """Keys that more than one writer was told to have created."""
    wrong_bytes: tuple[str, ...]
    """Keys that some writer read wrongly: no object, or not the winner's bytes, or not the same as others."""
    errors: tuple[str, ...]
    conflicts: int


def payload(writer: int) -> bytes:
    """Return what a writer writes: different for each, and long enough to show torn writes."""
    return f"writer {writer:04d};".encode() * 64


def judged(attempts: Sequence[Attempt]) -> Verdict:
    """Judge the attempts. A writer that met an error says nothing about the winner."""
    by_key: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_key[attempt.key].append(attempt)
    return Verdict(
        judged=sum(len([attempt for attempt in tried if not attempt.error]) > 1 for tried in by_key.values()),
        several_winners=tuple(key for key, tried in by_key.items() if len(_winners(tried)) > 1),
        wrong_bytes=tuple(key for key, tried in by_key.items() if _disagree(tried)),
        errors=tuple(sorted({attempt.error for attempt in attempts if attempt.error})),
        conflicts=sum({attempt.writer: attempt.conflicts for attempt in attempts}.values()),
    )


def _winners(tried: Sequence[Attempt]) -> list[int]:
    return [attempt.writer for attempt in tried if attempt.created]


def _disagree(tried: Sequence[Attempt]) -> bool:
    seen = {attempt.seen for attempt in tried if not attempt.error}
    # With a lost answer nobody may know of having won; then any one writer's bytes will do.
    possible = _winners(tried) or [attempt.writer for attempt in tried]
    return len(seen) > 1 or not seen <= {payload(writer) for writer in possible}


def race(store: Store, keys: Sequence[str], writers: int, processes: int) -> list[Attempt]:
    """Let all writers try to create each key at once; return what each was told. Blocks until all are done.

    Raises MailboxUnavailable if a process of writers died.
    """
    if processes <= 1 or not store.spans_processes:
        return _threads(store, keys, range(writers), threading.Barrier(writers))
    return _processes(store, keys, [range(first, writers, processes) for first in range(min(processes, writers))])


def _threads(store: Store, keys: Sequence[str], writers: Sequence[int], meeting: Meeting) -> list[Attempt]:
    attempts: list[Attempt] = []
    threads = [
        threading.Thread(
            target=_write, args=(store.reconnected(), keys, writer, meeting, attempts), name=f"writer {writer}"
        )
        for writer in writers
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # Interrupted, nobody may go on to write what the caller is about to clean up.
        meeting.abort()
        for thread in threads:
            thread.join()
    return attempts


def _write(store: Store, keys: Sequence[str], writer: int, meeting: Meeting, attempts: list[Attempt]) -> None:
    try:
        for key in keys:
            meeting.wait(MEETING_SECONDS)
            attempts.append(_attempt(store, key, writer))
    except threading.BrokenBarrierError:
        pass
    except BaseException:
        meeting.abort()
        raise


def _attempt(store: Store, key: str, writer: int) -> Attempt:
    created, seen, error = None, None, ""
    try:
        created = store.put_if_absent(key, payload(writer))
        seen = store.get(key)
    except MailboxError as raised:
        error = str(raised)
    return Attempt(key, writer, created, seen, error, getattr(store, "conflicts", 0))


def _processes(store: Store, keys: Sequence[str], shares: Sequence[Sequence[int]]) -> list[Attempt]:
    context = multiprocessing.get_context("spawn")
    meeting = context.Barrier(sum(map(len, shares)))
    pipes = [context.Pipe(duplex=False) for _ in shares]
    children = [
        context.Process(target=_child, args=(sender, store, keys, share, meeting), name=f"writers {share}", daemon=True)
        for share, (_, sender) in zip(shares, pipes, strict=True)
    ]
    try:
        with _interrupts_held():
            for child in children:
                child.start()
        for _, sender in pipes:
            sender.close()
        return [attempt for receiver, _ in pipes for attempt in _received(receiver)]
    finally:
        for child in children:
            child.terminate()
            child.join()
        for receiver, _ in pipes:
            receiver.close()


def _child(sender: Connection, store: Store, keys: Sequence[str], share: Sequence[int], meeting: Meeting) -> None:
    sender.send(_threads(store, keys, share, meeting))


def _received(receiver: Connection) -> list[Attempt]:
    try:
        attempts: list[Attempt] = receiver.recv()
    except EOFError:
        raise MailboxUnavailable("a process of racing writers died before it was done; try again") from None
    return attempts


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: this process ends them, and must still be able to clean up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
