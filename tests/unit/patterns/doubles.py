"""A mailbox that records and can be held, and a loader that can be held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gradientmail.mailbox import Mailbox

BOUND_SECONDS = 20.0


@dataclass
class Recorded:
    """A mailbox that notes each call (verb, key, thread); `before` may raise, block or meddle."""

    inner: Mailbox
    before: Callable[[str, str], None] = lambda verb, key: None
    calls: list[tuple[str, str]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def _note(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        self.threads.add(threading.current_thread().name)
        self.before(verb, key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._note("put_if_absent", key)
        return self.inner.put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self._note("get", key)
        return self.inner.get(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        self._note("list", f"{prefix}>{after}")
        return self.inner.list(prefix, after=after)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def of_units(self) -> tuple[tuple[str, str], ...]:
        """The calls that concern claims."""
        return tuple(call for call in self.calls if call[1].startswith("units/"))


class Loader:
    """Loads `count` numbered batches per unit; each load waits for a permit when `held`."""

    def __init__(self, count: int = 1, *, held: bool = False) -> None:
        self.count = count
        self.loaded: list[str] = []
        self.threads: set[str] = set()
        self.permits = threading.Semaphore(0)
        self.held = held
        self.started = threading.Event()

    def __call__(self, unit: str) -> Iterator[str]:
        self.started.set()
        for number in range(self.count):
            if self.held:
                assert self.permits.acquire(timeout=BOUND_SECONDS)
            self.threads.add(threading.current_thread().name)
            self.loaded.append(f"{unit}.{number}")
            yield f"{unit}.{number}"

    def allow(self, batches: int) -> None:
        """Let so many more batches be loaded."""
        self.permits.release(batches)
