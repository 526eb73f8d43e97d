"""What a node writes when it leaves: its farewell and its termination message. Needs no torch."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gradientmail.layout import left_key
from gradientmail.mailbox import Mailbox
from gradientmail.progress import NodeProgress

MESSAGE_BYTES = 4096
"""What Kubernetes keeps of a termination message."""

logger = logging.getLogger(__name__)


def termination_message(progress: NodeProgress) -> bytes:
    """Return the progress as JSON of at most MESSAGE_BYTES; if need be without versions, and with a shorter message."""
    text = progress.to_json().encode()
    if len(text) > MESSAGE_BYTES and progress.exchange:
        progress = replace(progress, exchange=replace(progress.exchange, versions=()))
        text = progress.to_json().encode()
    while len(text) > MESSAGE_BYTES and progress.message:
        kept = len(progress.message) - max(2, (len(text) - MESSAGE_BYTES) // 6)
        progress = replace(progress, message=f"{progress.message[: max(0, kept)]}…" if kept > 0 else "")
        text = progress.to_json().encode()
    return text


def write_termination_message(path: Path | None, progress: NodeProgress) -> None:
    """Write the message where Kubernetes looks for it. A path that cannot be written is logged, no more."""
    if path is None:
        return
    try:
        _write_in_place(path, termination_message(progress))
    except OSError as error:
        logger.warning("the termination message could not be written to %s: %s", path, error.strerror)


def _write_in_place(path: Path, text: bytes) -> None:
    """Write at once over what is there, padded with blanks, so that a kill leaves the old message or the new one.

    The file is mounted into the container: another cannot be moved into its place.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        os.pwrite(file, text.ljust(min(size, MESSAGE_BYTES)), 0)
        if size > MESSAGE_BYTES:
            os.ftruncate(file, MESSAGE_BYTES)
    finally:
        os.close(file)


class LastWords:
    """Keeps the termination message up to date, so that its counts are right however the container ends.

    An observer of a shared queue. From any thread; a write of one small local file each time.
    """

    def __init__(self, path: Path | None, progress: Callable[[], NodeProgress]) -> None:
        self._path = path
        self._progress = progress
        self._lock = threading.Lock()

    def write(self) -> NodeProgress:
        """Write the progress of this moment, and return it."""
        with self._lock:
            progress = self._progress()
            write_termination_message(self._path, progress)
        return progress

    def claimed(self, identifier: str, seconds: float) -> None:  # noqa: ARG002
        """See QueueObserver."""
        self.write()

    def lost(self, identifier: str) -> None:
        """See QueueObserver."""

    def loaded(self, identifier: str, batches: int, seconds: float) -> None:
        """See QueueObserver."""

    def consumed(self, identifier: str) -> None:  # noqa: ARG002
        """See QueueObserver."""
        self.write()


def write_left(mailbox: Mailbox, learner: str, progress: NodeProgress) -> None:
    """Write `left/{learner}`, the node's farewell: its last progress. Raises the mailbox's errors."""
    mailbox.put_if_absent(left_key(learner), progress.to_json().encode())
