"""What a mailbox is (Mailbox), and what the stores have in common (Store).

Any object with the four verbs serves as a mailbox. Stores of this package inherit from
Store, which checks keys and reports each request that goes out, so that counts are exact
and the same for every store.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from gradientmail.mailbox.errors import MailboxUnavailable, MailboxUnsuitable
from gradientmail.mailbox.keys import check_bound, check_key

Operation = Literal["put_if_absent", "get", "list", "delete"]
Outcome = Literal["ok", "exists", "missing", "unavailable", "error"]

Result = TypeVar("Result")


@runtime_checkable
class Mailbox(Protocol):
    """Four verbs over immutable objects. Synchronous; safe to call from any thread.

    Every verb may raise MailboxUnavailable (try again) or MailboxMisconfigured (do not).
    """

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create the object; False if the key exists already. Atomic: of any number of racing calls one creates.

        After MailboxUnavailable the object may exist or not. False may also be the answer to a
        write of this very process whose first answer was lost, so who created an object is
        decided by reading it, never by the value returned here.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """Return the object's bytes, whole, or None if there is no such key."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        """Yield the keys that start with prefix and sort after `after`, in the order of their UTF-8 bytes.

        Pages are fetched as they are consumed: what is not consumed is not requested.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; keys that do not exist are no error. Not atomic over several keys."""
        ...


class Request(NamedTuple):
    """One request to the store, as reported to an observer."""

    operation: Operation
    outcome: Outcome
    seconds: float
    keys: int
    """Keys listed by a page or named by a deletion; 1 otherwise."""


Observer = Callable[[Request], None]
"""Called after each request, on the thread that made it. Must be quick and must not raise."""


class Page(NamedTuple):
    """One page of a listing, possibly without keys."""

    keys: list[str]
    resume: str | None
    """After which key the next page starts; None if nothing follows."""

    @classmethod
    def of(cls, keys: list[str], limit: int) -> Page:
        """Return the page of the first `limit` keys; one key more than that shows that another page follows."""
        page = keys[:limit]
        return cls(page, page[-1] if len(keys) > limit else None)


class Store(ABC):
    """A mailbox made of four primitives, one request each.

    Subclasses implement `_create`, `_read`, `_page` and `_remove`; they translate whatever
    their client raises into the errors of this package.
    """

    page_keys = 1000
    """The most keys in one page of a listing; the most keys in one deletion."""

    spans_processes = False
    """Whether a pickled copy reaches the same objects from another process."""

    def __init__(self, *, observe: Observer | None = None) -> None:
        self.observe = observe

    def __getstate__(self) -> dict[str, object]:
        """Leave the observer behind: it counts for the process that set it."""
        return {**self.__dict__, "observe": None}

    def reconnected(self) -> Store:
        """Return a store of the same objects that shares no connection with this one, where it has any."""
        return self

    def store_time(self) -> float | None:
        """Return the store's own clock in seconds since 1970, or None if it has no clock but this machine's."""
        return None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See Mailbox."""
        check_key(key)
        # A caller may go on to change a bytearray or the memory behind a view.
        kept = bytes(data)
        return self._measured("put_if_absent", partial(self._create, key, kept), _created)

    def get(self, key: str) -> bytes | None:
        """See Mailbox."""
        check_key(key)
        return self._measured("get", partial(self._read, key), _found)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        """See Mailbox. Raises InvalidKey for text that is not valid Unicode."""
        check_bound(prefix)
        check_bound(after)
        while True:
            page = self._measured("list", partial(self._page, prefix, after), _ok, _listed)
            yield from page.keys
            if page.resume is None:
                return
            if page.resume <= after:
                raise MailboxUnsuitable(f"{self!r} lists from the start although asked for what follows {after!r}")
            after = page.resume

    def delete(self, keys: Iterable[str]) -> None:
        """See Mailbox."""
        if isinstance(keys, str):
            raise TypeError(f"delete takes several keys: write delete([{keys!r}])")
        chosen = [check_key(key) for key in keys]
        for first in range(0, len(chosen), self.page_keys):
            part = chosen[first : first + self.page_keys]
            self._measured("delete", partial(self._remove, part), _ok, partial(_named, part))

    @abstractmethod
    def _create(self, key: str, data: bytes) -> bool: ...

    @abstractmethod
    def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    def _page(self, prefix: str, after: str) -> Page: ...

    @abstractmethod
    def _remove(self, keys: Sequence[str]) -> None: ...

    def _measured(
        self,
        operation: Operation,
        call: Callable[[], Result],
        outcome: Callable[[Result], Outcome],
        keys: Callable[[Result], int] = lambda _: 1,
    ) -> Result:
        start = time.perf_counter()
        try:
            result = call()
        except MailboxUnavailable:
            self._report(operation, "unavailable", start, 0)
            raise
        except Exception:
            self._report(operation, "error", start, 0)
            raise
        self._report(operation, outcome(result), start, keys(result))
        return result

    def _report(self, operation: Operation, outcome: Outcome, start: float, keys: int) -> None:
        if self.observe is not None:
            self.observe(Request(operation, outcome, time.perf_counter() - start, keys))


def _created(result: bool) -> Outcome:
    return "ok" if result else "exists"


def _found(result: bytes | None) -> Outcome:
    return "missing" if result is None else "ok"


def _ok(_: object) -> Outcome:
    return "ok"


def _named(keys: Sequence[str], _: None) -> int:
    return len(keys)


def _listed(page: Page) -> int:
    return len(page.keys)
