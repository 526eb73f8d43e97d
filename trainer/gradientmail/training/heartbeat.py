"""Heartbeats: objects by which the other nodes and `gradientmail status` see that a learner lives."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gradientmail.layout import beat_key
from gradientmail.mailbox import Mailbox
from gradientmail.progress import NodeProgress


class Heartbeat:
    """Writes `alive/{learner}/{beat}` with the node's progress, and deletes the beat before. Thread-safe.

    Beat 0 belongs to the shared queue, which registers the learner with it.
    """

    def __init__(self, mailbox: Mailbox, learner: str, progress: Callable[[], NodeProgress]) -> None:
        self._mailbox = mailbox
        self._learner = learner
        self._progress = progress
        self._beat = 0
        self._old: list[str] = []
        self._lock = threading.Lock()

    def beat(self) -> None:
        """Write one beat. Blocks for one or two requests; raises the mailbox's errors."""
        with self._lock:
            self._beat += 1
            key = beat_key(self._learner, self._beat)
            old = [*self._old]
            # A write without an answer may have landed, so it is deleted later all the same.
            self._old.append(key)
            self._mailbox.put_if_absent(key, self._progress().to_json().encode())
            self._mailbox.delete(old)
            self._old = [key]
