"""A mailbox that fails on purpose: wrap it round any other to see what your own code does then.

    box = FaultyStore(
        open_mailbox("memory:"),
        Fault("lost answer", operations=("put_if_absent",), keys="units/*", count=2),
        Fault("unavailable", skip=100, count=50),
        Fault("slow", seconds=0.05, every=10),
    )
    with box.outage():
        ...  # every request fails
    assert box.injected["lost answer"] == 2

The same requests in the same order meet the same faults: nothing is random. Requests of several
threads are counted in the order in which they arrive.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal, TypeVar

from gradientmail.mailbox.base import Mailbox, Observer, Operation, Page, Store
from gradientmail.mailbox.errors import MailboxDenied, MailboxUnavailable

Kind = Literal["lost answer", "answered twice", "conflict", "unavailable", "throttled", "denied", "slow"]
"""What happens to a request:

- `lost answer`: it is carried out, then MailboxUnavailable is raised.
- `answered twice`: it is carried out twice, as by a client that lost the first answer and tried again; the second
  answer counts. So put_if_absent says False about the caller's own object.
- `conflict`: it is not carried out; MailboxUnavailable, as after a store's 409.
- `unavailable`: it is not carried out; MailboxUnavailable, as after a 5xx answer.
- `throttled`: it is not carried out; MailboxUnavailable, as after 503 SlowDown.
- `denied`: it is not carried out; MailboxDenied.
- `slow`: it is carried out `seconds` later.
"""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Fault:
    """One kind of failure and the requests that it befalls.

    Of the requests that match `operations` and `keys`, the first `skip` pass; of the rest, every `every`-th
    fails, `count` in all.
    """

    kind: Kind
    operations: Sequence[Operation] = ("put_if_absent", "get", "list", "delete")
    keys: str = "*"
    """A shell pattern for the key, a listing's prefix, or any key of a deletion; `*` also matches `/`."""
    skip: int = 0
    every: int = 1
    count: int | None = None
    """How many requests fail; None for no end."""
    seconds: float = 0.0
    """The delay, for `slow`."""

    def __post_init__(self) -> None:
        if self.skip < 0 or self.every < 1 or (self.count is not None and self.count < 0) or self.seconds < 0:
            raise ValueError(f"{self}: skip, count and seconds must be 0 or more and every must be 1 or more")

    def matches(self, operation: Operation, keys: Sequence[str]) -> bool:
        """Whether the fault is about such a request."""
        return operation in self.operations and any(fnmatchcase(key, self.keys) for key in keys)

    def strikes(self, number: int) -> bool:
        """Whether the matching request of that number, from 0, fails."""
        nth, rest = divmod(number - self.skip, self.every)
        return number >= self.skip and rest == 0 and (self.count is None or nth < self.count)


class FaultyStore(Store):
    """Any mailbox, with faults. Safe to call from any thread; counts are this process's own."""

    def __init__(
        self,
        inner: Mailbox,
        *faults: Fault,
        observe: Observer | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(observe=observe)
        self.inner = inner
        self.faults = faults
        self.injected: Counter[str] = Counter()
        """How many requests each kind of fault, or an `outage`, befell."""
        self.page_keys = getattr(inner, "page_keys", self.page_keys)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._matched = [0] * len(faults)
        self._down = False

    def __reduce__(self) -> tuple[object, ...]:
        return FaultyStore, (self.inner, *self.faults)

    def fail(self) -> None:
        """Begin an outage: every request fails until `heal`."""
        with self._lock:
            self._down = True

    def heal(self) -> None:
        """End the outage."""
        with self._lock:
            self._down = False

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Let every request fail inside the block."""
        self.fail()
        try:
            yield
        finally:
            self.heal()

    def _create(self, key: str, data: bytes) -> bool:
        return self._faulted("put_if_absent", [key], lambda: self.inner.put_if_absent(key, data))

    def _read(self, key: str) -> bytes | None:
        return self._faulted("get", [key], lambda: self.inner.get(key))

    def _page(self, prefix: str, after: str) -> Page:
        return self._faulted("list", [prefix], lambda: self._inner_page(prefix, after))

    def _remove(self, keys: Sequence[str]) -> None:
        self._faulted("delete", keys, lambda: self.inner.delete(keys))

    def _inner_page(self, prefix: str, after: str) -> Page:
        # One key more would make the inner mailbox fetch a page that nobody asked for.
        keys = list(islice(self.inner.list(prefix, after=after), self.page_keys))
        return Page(keys, keys[-1] if len(keys) == self.page_keys else None)

    def _faulted(self, operation: Operation, keys: Sequence[str], call: Callable[[], Result]) -> Result:
        struck = self._struck(operation, keys)
        for fault in struck:
            self._before(fault, operation, keys)
        result = call()
        for fault in struck:
            if fault.kind == "answered twice":
                result = call()
            if fault.kind == "lost answer":
                raise MailboxUnavailable(f"injected: the answer to {operation} of {keys[0]!r} was lost; try again")
        return result

    def _struck(self, operation: Operation, keys: Sequence[str]) -> list[Fault]:
        """Return the faults that befall this request, and count it."""
        with self._lock:
            if self._down:
                self.injected["outage"] += 1
                raise MailboxUnavailable(f"injected: outage at {operation} of {keys[0]!r}; try again")
            struck = []
            for index, fault in enumerate(self.faults):
                if fault.matches(operation, keys):
                    if fault.strikes(self._matched[index]):
                        struck.append(fault)
                        self.injected[fault.kind] += 1
                    self._matched[index] += 1
            return struck

    def _before(self, fault: Fault, operation: Operation, keys: Sequence[str]) -> None:
        what = f"{operation} of {keys[0]!r}"
        match fault.kind:
            case "slow":
                self._sleep(fault.seconds)
            case "conflict":
                raise MailboxUnavailable(f"injected: 409 (conflict) to {what}; try again")
            case "unavailable":
                raise MailboxUnavailable(f"injected: 500 to {what}; try again")
            case "throttled":
                raise MailboxUnavailable(f"injected: 503 SlowDown to {what}; try again")
            case "denied":
                raise MailboxDenied(f"injected: 403 AccessDenied to {what}; grant the permission")
