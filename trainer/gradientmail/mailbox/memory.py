"""A mailbox in this process's memory: for tests, simulations and nodes that are threads.

Assumes nothing outside the process. Other processes see nothing of it, and it ends with the process.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NoReturn

from gradientmail.mailbox.base import Observer, Page, Store


class MemoryStore(Store):
    """Objects in a dictionary under one lock. Never raises MailboxUnavailable."""

    def __init__(self, *, observe: Observer | None = None) -> None:
        super().__init__(observe=observe)
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        # Code points sort as their UTF-8 bytes do, so plain strings are in the order of a mailbox.
        self._sorted: list[str] = []

    def __reduce__(self) -> NoReturn:
        raise TypeError("a memory: mailbox lives in one process: give other processes a file:// or s3:// mailbox")

    def _create(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = data
            insort(self._sorted, key)
            return True

    def _read(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def _page(self, prefix: str, after: str) -> Page:
        with self._lock:
            first = max(bisect_left(self._sorted, prefix), bisect_right(self._sorted, after))
            found = self._sorted[first : first + self.page_keys + 1]
        return Page.of([key for key in found if key.startswith(prefix)], self.page_keys)

    def _remove(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                if self._objects.pop(key, None) is not None:
                    del self._sorted[bisect_left(self._sorted, key)]


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def named(name: str) -> MemoryStore:
    """Return this process's mailbox of that name, making it at the first call."""
    with _stores_lock:
        return _stores.setdefault(name, MemoryStore())
