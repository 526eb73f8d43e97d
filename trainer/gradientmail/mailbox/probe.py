"""Whether a store may hold a shared queue: the guarantees of docs/mailbox.md, each tried for real.

Everything happens under a scratch prefix inside the mailbox, which is removed at the end, also after a failure or
Ctrl-C. A sequential test is not enough: some stores pass it and yet let all writers of a race win.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from gradientmail.mailbox.base import Observer, Operation, Request, Store
from gradientmail.mailbox.errors import (
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxUnavailable,
    MailboxUnsuitable,
)
from gradientmail.mailbox.racing import Verdict, judged, race

Result = Literal["passed", "failed", "denied", "warning", "skipped"]

ORDERED = ("0", "00", "1", "10", "2", "A", "a", "a-b", "a.b", "a/b", "a0", "b")
"""In the order of their bytes, which is not that of numbers, of a dictionary or of folders first."""
ORDERED_BEYOND_ASCII = ("z", "é", "\uff5e", "\U0001f600")
"""In the order of their UTF-8 bytes; stores that compare UTF-16 units swap the last two."""
SKEW_SECONDS = 60.0
PROCESSES = 2
NOT_MANY = 3
"""How many keys a message names."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `denied` is a missing permission, `failed` a missing guarantee."""

    name: str
    result: Result
    detail: str


@dataclass(frozen=True)
class Latency:
    """How long one verb's requests took, in seconds, one at a time."""

    operation: Operation
    requests: int
    median_seconds: float
    p95_seconds: float


@dataclass(frozen=True)
class Report:
    """All that was found."""

    checks: tuple[Check, ...]
    latencies: tuple[Latency, ...]

    @property
    def suitable(self) -> bool:
        """Whether a shared queue may live here."""
        return not any(check.result in ("failed", "denied") for check in self.checks)


def examine(
    store: Store,
    *,
    keys: int = 32,
    racers: int = 8,
    processes: int = PROCESSES,
    on_check: Callable[[Check], None] = lambda _: None,
) -> Report:
    """Examine a store with some 2 * `keys` * `racers` requests; call on_check after each check. Blocks.

    Raises ValueError for fewer than one key or two racers; the store's MailboxError if it does not answer, is
    misconfigured, or denies every verb.
    """
    if keys < 1 or racers < 2:
        raise ValueError(f"keys={keys}, racers={racers}: a race needs at least 1 key and 2 racers")
    scratch = _Scratch(store, f"doctor-{uuid.uuid4().hex}/")
    checks: list[Check] = []
    try:
        with _measured(store) as requests:
            for check in _checks(scratch, keys, racers, processes):
                checks.append(check)
                on_check(check)
    finally:
        left = scratch.removed()
    if left:
        checks.append(left)
        on_check(left)
    return Report(tuple(checks), latencies(requests))


def latencies(requests: Sequence[Request]) -> tuple[Latency, ...]:
    """Return median and 95th percentile of each verb's answered requests."""
    operations: tuple[Operation, ...] = ("put_if_absent", "get", "list", "delete")
    answered = {
        operation: sorted(request.seconds for request in requests if request.operation == operation)
        for operation in operations
    }
    return tuple(
        Latency(operation, len(taken), taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 95 // 100)])
        for operation, taken in answered.items()
        if taken
    )


class _Scratch:
    """The prefix that the probe works under."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self._named: list[str] = []

    def key(self, name: str) -> str:
        """Return a key under the prefix, to be removed at the end."""
        self._named.append(self.prefix + name)
        return self._named[-1]

    def removed(self) -> Check | None:
        """Remove all objects, those that a listing does not show too; say so if some had to stay."""
        if not self._named:
            return None
        try:
            self.store.delete(self._named)
            self.store.delete(list(self.store.list(self.prefix)))
        except MailboxError as error:
            return Check("cleaning up", "warning", f"objects may remain under {self.prefix}: {error}")
        return None


def _checks(scratch: _Scratch, keys: int, racers: int, processes: int) -> Iterator[Check]:
    permissions = list(_permissions(scratch))
    yield from permissions
    if any(check.result != "passed" for check in permissions):
        yield Check("all further checks", "skipped", "they need every verb")
        return
    yield _second_create(scratch)
    yield from _race(scratch, keys, racers, processes)
    yield from _read_after_write(scratch, keys)
    yield from _order(scratch)
    yield _clock(scratch.store)


def _permissions(scratch: _Scratch) -> Iterator[Check]:
    """Try each verb once. Raises what the store raises if no verb works."""
    store, key = scratch.store, scratch.prefix + "permission"
    calls: dict[str, Callable[[], object]] = {
        "list": lambda: list(store.list(scratch.prefix)),
        "create": lambda: store.put_if_absent(scratch.key("permission"), b"permission"),
        "read": lambda: store.get(key),
        "delete": lambda: store.delete([key]),
    }
    tried = {name: _tried(call) for name, call in calls.items()}
    errors = [error for error, _ in tried.values() if error]
    if len(errors) == len(tried):
        raise errors[0]
    for name, (error, seconds) in tried.items():
        yield _permission(f"may {name}", error, seconds)


def _tried(call: Callable[[], object]) -> tuple[MailboxError | None, float]:
    start = time.perf_counter()
    try:
        call()
    except (MailboxDenied, MailboxUnsuitable) as error:
        return error, time.perf_counter() - start
    return None, time.perf_counter() - start


def _permission(name: str, error: MailboxError | None, seconds: float) -> Check:
    if error is None:
        return Check(name, "passed", f"answered in {seconds * 1000:.1f} ms")
    return Check(name, "denied" if isinstance(error, MailboxDenied) else "failed", str(error))


def _second_create(scratch: _Scratch) -> Check:
    store, key, name = scratch.store, scratch.key("second"), "a key is created once"
    answers = store.put_if_absent(key, b"first"), store.put_if_absent(key, b"second")
    found = store.get(key)
    if found == b"first" and not answers[1]:
        return Check(name, "passed", "the second write of a key was refused and changed nothing")
    return Check(
        name, "failed", f"the writes were answered {answers} and left {found!r}: the store ignores the condition"
    )


def _race(scratch: _Scratch, keys: int, racers: int, processes: int) -> Iterator[Check]:
    names = [scratch.key(f"race/{number:06d}") for number in range(keys)]
    observe, scratch.store.observe = scratch.store.observe, None  # requests that wait for others are no measure
    try:
        verdict = judged(race(scratch.store, names, racers, processes))
    finally:
        scratch.store.observe = observe
    yield _one_winner(verdict, keys, racers)
    yield _winners_bytes(verdict, keys)


def _one_winner(verdict: Verdict, keys: int, racers: int) -> Check:
    """Raises MailboxUnavailable if too few racers were answered to tell."""
    name = "a race has one winner"
    if verdict.several_winners:
        return Check(name, "failed", f"several racers won {_some(verdict.several_winners)} of {keys} keys")
    errors = "; ".join(verdict.errors)
    if verdict.judged < keys:
        raise MailboxUnavailable(f"only {verdict.judged} of {keys} races could be judged: {errors or 'racers stopped'}")
    conflicts = f"; 409 answers: {verdict.conflicts}, all settled" if verdict.conflicts else ""
    detail = f"{keys} keys, {racers} racers for each, one winner each{conflicts}"
    return (
        Check(name, "warning", f"{detail}; not all were answered: {errors}")
        if errors
        else Check(name, "passed", detail)
    )


def _winners_bytes(verdict: Verdict, keys: int) -> Check:
    name = "losers read the winner's bytes"
    if verdict.wrong_bytes:
        return Check(name, "failed", f"some racer read no object or another's bytes at {_some(verdict.wrong_bytes)}")
    return Check(name, "passed", f"all racers read the same bytes at each of {keys} keys")


def _some(keys: Sequence[str]) -> str:
    names = ", ".join(key.partition("/")[2] for key in keys[:NOT_MANY])
    return f"{len(keys)} ({names}{', …' if len(keys) > NOT_MANY else ''})"


def _read_after_write(scratch: _Scratch, keys: int) -> Iterator[Check]:
    writer, reader = scratch.store, scratch.store.reconnected()
    reader.observe = writer.observe
    names = [scratch.key(f"write/{number:06d}") for number in range(keys)]
    unread, unlisted = [], []
    for number, key in enumerate(names):
        writer.put_if_absent(key, key.encode())
        if reader.get(key) != key.encode():
            unread.append(key)
        if list(reader.list(f"{scratch.prefix}write/", after=names[number - 1] if number else "")) != [key]:
            unlisted.append(key)
    yield _none("a written object is read at once", unread, keys, "not read, or read wrongly,")
    yield _none("a written object is listed at once", unlisted, keys, "not listed, or not alone after the one before,")
    writer.delete(names)
    remaining = [key for key in names[-1:] if reader.get(key) is not None] + list(
        reader.list(f"{scratch.prefix}write/")
    )
    yield _none("a deleted object is gone at once", remaining, keys, "still there")


def _none(name: str, keys: Sequence[str], tried: int, what: str) -> Check:
    if keys:
        return Check(name, "failed", f"{_some(keys)} of {tried} were {what} from another connection")
    return Check(name, "passed", f"{tried} of {tried}, from another connection")


def _order(scratch: _Scratch) -> Iterator[Check]:
    base = f"{scratch.prefix}order/"
    expected = _written(scratch, base, ORDERED)
    found = list(scratch.store.list(base))
    yield Check("listings are in byte order", *_same(found, expected, base))
    yield Check("listings start after a key", *_resumed(scratch.store, expected, base))
    prefixed = list(scratch.store.list(f"{base}a"))
    yield Check(
        "listings keep to a prefix", *_same(prefixed, [key for key in expected if key.startswith(f"{base}a")], base)
    )
    yield _order_beyond_ascii(scratch)


def _written(scratch: _Scratch, base: str, names: Sequence[str]) -> list[str]:
    expected = [scratch.key(base.removeprefix(scratch.prefix) + name) for name in names]
    for key in reversed(expected):
        scratch.store.put_if_absent(key, b"")
    return expected


def _resumed(store: Store, expected: Sequence[str], base: str) -> tuple[Result, str]:
    for number, key in enumerate(expected):
        for after in (key, f"{key}!"):
            wanted = [other for other in expected[number:] if other > after]
            found = list(store.list(base, after=after))
            if found != wanted:
                return (
                    "failed",
                    f"after {after.removeprefix(base)!r} came {_names(found, base)}, not {_names(wanted, base)}",
                )
    return "passed", f"{2 * len(expected)} starting points, existing keys and others"


def _same(found: Sequence[str], expected: Sequence[str], base: str) -> tuple[Result, str]:
    if list(found) == list(expected):
        return "passed", f"{len(expected)} keys"
    return "failed", f"listed {_names(found, base)}, not {_names(expected, base)}"


def _names(keys: Sequence[str], base: str) -> str:
    return " ".join(key.removeprefix(base) for key in keys) or "nothing"


def _order_beyond_ascii(scratch: _Scratch) -> Check:
    name, base = "byte order beyond ASCII", f"{scratch.prefix}unicode/"
    try:
        expected = _written(scratch, base, ORDERED_BEYOND_ASCII)
        result, detail = _same(list(scratch.store.list(base)), expected, base)
    except MailboxMisconfigured as error:
        result, detail = "failed", str(error)
    if result == "passed":
        return Check(name, "passed", detail)
    return Check(name, "warning", f"{detail}; use only ASCII in learner IDs and unit identifiers")


def _clock(store: Store) -> Check:
    name, before = "clocks agree", time.time()
    stated = store.store_time()
    if stated is None:
        return Check(name, "skipped", "the store has no clock of its own")
    # S3 states whole seconds, so the middle of that second is the better guess; nothing finer is claimed.
    skew = stated - (before + time.time()) / 2
    result: Result = "passed" if abs(skew) <= SKEW_SECONDS else "warning"
    advice = "" if result == "passed" else "; set this machine's clock: S3 refuses requests at 15 minutes"
    return Check(name, result, f"the store's clock is {skew:+.1f} s from this machine's{advice}")


@contextmanager
def _measured(store: Store) -> Iterator[list[Request]]:
    """Collect the store's answered requests, and still tell its own observer."""
    requests: list[Request] = []
    own: Observer | None = store.observe

    def observe(request: Request) -> None:
        if request.outcome in ("ok", "exists", "missing"):
            requests.append(request)
        if own is not None:
            own(request)

    store.observe = observe
    try:
        yield requests
    finally:
        store.observe = own
