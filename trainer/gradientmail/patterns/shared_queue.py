"""The shared queue: any number of nodes reserve, load and train the units of one data grid.

Source: the page "Shared Queue" of GradientMail. What it relies on is a mailbox whose
`put_if_absent` is atomic; what it gives is that each unit is delivered to exactly one node.
It does not give a second try: reservations are permanent, and what a failed node had claimed
is not reassigned. It knows nothing of units, batches or torch.

Requests of one uncontended claim: one page listed, one create, one read; one more create for
the receipt once the unit is trained.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from gradientmail.exits import UserError
from gradientmail.layout import UNITS, beat_key, check_identifier, check_learner_id, claim_key
from gradientmail.mailbox import Mailbox
from gradientmail.patterns.buffer import Buffer, Delivery
from gradientmail.patterns.claiming import PAGE, Answer, Claim, Create, ListClaims, ReadBack, Step, claim_steps
from gradientmail.patterns.ledger import Ledger
from gradientmail.patterns.receipts import ReceiptWriter
from gradientmail.patterns.retrying import Patience, Stopped
from gradientmail.progress import Receipt

UnitT = TypeVar("UnitT")
BatchT = TypeVar("BatchT")

logger = logging.getLogger(__name__)


class LearnerInUse(UserError):
    """Another process has used this learner ID under this prefix."""

    @classmethod
    def named(cls, learner_id: str) -> Self:
        """Return the error with its sentence."""
        return cls(
            f"learner ID {learner_id!r} has been used under this prefix by another process: "
            "give each process a learner ID of its own, and each run a prefix of its own"
        )


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of one queue's counts; times in seconds since it was entered."""

    claimed: int = 0
    """Units this learner owns."""
    consumed: int = 0
    """Units of which the loop has asked for the batch after the last and, with receipts, whose receipt is written."""
    conflicts: int = 0
    """Units tried that another learner turned out to own."""
    requests: int = 0
    """Requests to the mailbox: pages listed, creates and reads."""
    batches: int = 0
    """Batches handed to the loop."""
    buffered: int = 0
    """Batches loaded and not yet taken."""
    wait_seconds: float = 0.0
    """Time the loop has waited for a batch."""
    claim_seconds: float = 0.0
    """Time the background thread has spent on claims."""
    load_seconds: float = 0.0
    """Time the background thread has spent in the loader."""


class QueueObserver(Protocol):
    """Told of a queue's events as they happen, on its background threads, never the loop's. Must not raise."""

    def claimed(self, identifier: str, seconds: float) -> None:
        """A unit belongs to this learner; the claim took so long."""

    def lost(self, identifier: str) -> None:
        """A unit that this learner tried belongs to another."""

    def loaded(self, identifier: str, batches: int, seconds: float) -> None:
        """A unit's batches have all been loaded; the loader took so long."""

    def consumed(self, identifier: str) -> None:
        """A unit's receipt has been written."""


class _Silent:
    def claimed(self, identifier: str, seconds: float) -> None: ...
    def lost(self, identifier: str) -> None: ...
    def loaded(self, identifier: str, batches: int, seconds: float) -> None: ...
    def consumed(self, identifier: str) -> None: ...


@dataclass(slots=True)
class _Counts:
    """Each field is written by one thread."""

    claimed: int = 0
    conflicts: int = 0
    requests: int = 0
    claim_seconds: float = 0.0
    load_seconds: float = 0.0
    consumed: int = 0


class SharedQueue(Generic[BatchT]):
    """A context manager and the iterator over this node's batches. Made by `shared_queue`; used once.

    Iterate in one thread. `stop` and `statistics` may be used from any thread; `stop` also in
    a signal handler.
    """

    def __init__(
        self,
        units: Mapping[str, UnitT],
        *,
        mailbox: Mailbox,
        learner_id: str,
        load: Callable[[UnitT], Iterable[BatchT]],
        prefetch: int,
        claim_ahead: int | None,
        outage_seconds: float,
        flush_seconds: float,
        receipts: bool,
        observer: QueueObserver | None,
        clock: Callable[[], float],
    ) -> None:
        self._mailbox = mailbox
        self._learner_id = learner_id
        self._load: Callable[[str], Iterable[BatchT]] = lambda identifier: load(units[identifier])
        self._claim_ahead = claim_ahead
        self._clock = clock
        self._observer = observer or _Silent()
        self._ledger = Ledger(units)
        self._counts = _Counts()
        self._buffer = Buffer[BatchT](prefetch, self._ended, clock=clock)
        self._patience = Patience(outage_seconds, self._buffer.pause)
        self._receipts = (
            ReceiptWriter(mailbox, flush_seconds=flush_seconds, written=self._observer.consumed) if receipts else None
        )
        self._thread = threading.Thread(target=self._prefetch, name="shared-queue-prefetch", daemon=True)
        self._process: int | None = None

    @property
    def statistics(self) -> QueueStatistics:
        """The counts so far."""
        counts, buffer = self._counts, self._buffer
        return QueueStatistics(
            claimed=counts.claimed,
            # With receipts, what has one: a unit whose receipt is never written counts as lost everywhere else.
            consumed=self._receipts.written if self._receipts else counts.consumed,
            conflicts=counts.conflicts,
            requests=counts.requests + (self._receipts.requests if self._receipts else 0),
            batches=buffer.taken,
            buffered=buffer.buffered,
            wait_seconds=buffer.wait_seconds,
            claim_seconds=counts.claim_seconds,
            load_seconds=counts.load_seconds,
        )

    @property
    def unit(self) -> str | None:
        """Identifier of the unit that the batch in use belongs to."""
        delivery = self._buffer.in_use
        return delivery.identifier if delivery else None

    @property
    def alive(self) -> bool:
        """Whether the background thread is still claiming or loading."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Make the batch in use the last one: nothing more is claimed or loaded, what is buffered is let go."""
        self._buffer.stop()

    def __enter__(self) -> Self:
        """Start claiming and loading. Blocks for nothing. Raises RuntimeError on a second use."""
        if self._process is not None:
            raise RuntimeError("a shared queue can be entered once: call shared_queue(...) again")
        self._process = os.getpid()
        if self._receipts:
            self._receipts.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop claiming and loading, wait for the operation under way, and write the receipts that are due."""
        self._buffer.stop()
        self._thread.join()
        unseen = self._buffer.drop()
        if unseen is not None and error is None:
            logger.warning("the queue was left before its failure was delivered: %s", unseen, exc_info=unseen)
        if self._receipts:
            self._receipts.close()

    def __iter__(self) -> Iterator[BatchT]:
        """Return the queue itself."""
        return self

    def __next__(self) -> BatchT:
        """Block until there is a batch; raise the loader's or the mailbox's error after the batches before it."""
        if self._process != os.getpid():
            raise RuntimeError(
                "a shared queue must be entered with `with`, and iterated in the process that entered it: "
                "make one in each process, each with a learner ID of its own"
            )
        return self._buffer.take()

    # On the loop's thread.

    def _ended(self, delivery: Delivery) -> None:
        self._counts.consumed += 1
        if self._receipts:
            self._receipts.add(delivery.identifier, self._receipt(delivery))

    def _receipt(self, delivery: Delivery) -> Receipt:
        return Receipt(
            learner=self._learner_id,
            batches=delivery.batches,
            claimed=delivery.claimed,
            started=delivery.started or delivery.claimed,
            finished=self._clock(),
        )

    # On the background thread.

    def _prefetch(self) -> None:
        failure: BaseException | None = None
        try:
            self._register()
            while self._may_claim() and (identifier := self._claim()) is not None:
                self._deliver(identifier)
        except Stopped:
            pass
        except StopIteration as error:
            # Raised in the loop it would end it, as if no work were left.
            failure = RuntimeError("the loader raised StopIteration instead of returning a unit's batches")
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the loop
            failure = error
        self._buffer.close(failure)

    def _may_claim(self) -> bool:
        if self._claim_ahead is not None and not self._buffer.wait_until_left(self._claim_ahead):
            return False
        return self._buffer.wait_for_room()

    def _register(self) -> None:
        """Take the learner ID for this process. A second process would mistake the first one's claims for its own."""
        if self._ledger.candidate() is None:
            return
        mine = f"{uuid.uuid4()}".encode()
        key = beat_key(self._learner_id, 0)
        self._patience.call(lambda: self._mailbox.put_if_absent(key, mine))
        if self._patience.call(lambda: self._mailbox.get(key)) != mine:
            raise LearnerInUse.named(self._learner_id)

    def _claim(self) -> str | None:
        start = time.perf_counter()
        claim = self._claimed(claim_steps(self._ledger, self._learner_id))
        seconds = time.perf_counter() - start
        self._counts.claim_seconds += seconds
        self._counts.conflicts += len(claim.lost)
        for identifier in claim.lost:
            self._observer.lost(identifier)
        if claim.identifier is not None:
            self._counts.claimed += 1
            self._observer.claimed(claim.identifier, seconds)
        return claim.identifier

    def _claimed(self, steps: Generator[Step, Answer, Claim]) -> Claim:
        answer: Answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                claim: Claim = end.value
                return claim
            answer = self._patience.call(functools.partial(self._answer, step))

    def _answer(self, step: Step) -> Answer:
        self._counts.requests += 1
        match step:
            case ListClaims(after):
                keys = self._mailbox.list(UNITS, after=claim_key(after) if after else "")
                return [key.removeprefix(UNITS) for key in itertools.islice(keys, PAGE)]
            case Create(identifier):
                self._mailbox.put_if_absent(claim_key(identifier), self._learner_id.encode())
                return None
            case ReadBack(identifier):
                owner = self._mailbox.get(claim_key(identifier))
                return None if owner is None else owner.decode(errors="replace")

    def _deliver(self, identifier: str) -> None:
        delivery = Delivery(identifier, self._clock())
        before = self._counts.load_seconds
        with self._timed_loading():
            batches = iter(self._load(identifier))
        try:
            loaded = self._deliver_batches(delivery, batches)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
        if loaded is not None:
            self._observer.loaded(identifier, loaded, self._counts.load_seconds - before)

    def _deliver_batches(self, delivery: Delivery, batches: Iterator[BatchT]) -> int | None:
        """Return how many batches the unit had, or None if the queue was stopped before its end."""
        for loaded in itertools.count():
            if not self._buffer.wait_for_room():
                return None
            try:
                with self._timed_loading():
                    batch = next(batches)
            except StopIteration:
                self._buffer.end(delivery)
                return loaded
            self._buffer.put(delivery, batch)
            del batch  # while this thread waits for room, the batch belongs to the buffer alone
        return None

    @contextlib.contextmanager
    def _timed_loading(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._counts.load_seconds += time.perf_counter() - start


def shared_queue(
    units: Mapping[str, UnitT],
    *,
    mailbox: Mailbox,
    learner_id: str,
    load: Callable[[UnitT], Iterable[BatchT]],
    prefetch: int = 8,
    claim_ahead: int | None = None,
    outage_seconds: float = 900.0,
    flush_seconds: float = 30.0,
    receipts: bool = True,
    observer: QueueObserver | None = None,
    clock: Callable[[], float] = time.time,
) -> SharedQueue[BatchT]:
    """Return this node's share of the units, to be used as `with shared_queue(...) as batches: for batch in batches`.

    units: every unit of the run by identifier, the same identifiers on every node. The order of
        the mapping is the order of claiming and may differ between nodes. Empty: no batches.
    mailbox: the run's own prefix, the same on every node and fresh for each run.
    learner_id: this process alone, ever, under this prefix. A second process with the same ID
        gets LearnerInUse instead of batches.
    load: gives a unit's batches in order; called and consumed on the background thread.
    prefetch: the most batches buffered. While so many are, nothing is loaded and nothing claimed.
    claim_ahead: claim the next unit once at most so many batches are left to train, counting the
        one in use. None: as soon as the buffer has room. 0: only when the loop waits, so that no
        node holds work it has not begun; the loop then waits for one claim and one batch per unit.
    outage_seconds: how long the store may not answer before the loop gets MailboxUnavailable;
        until then claims are retried, and the buffered batches go on being trained.
    flush_seconds: how long leaving the block may wait for a store that does not take receipts.
    receipts: whether to write `consumed/{identifier}` for each unit trained.
    observer: told of each event, on the background threads.
    clock: seconds since the epoch, for receipts.

    Errors of the loader or the mailbox reach the loop after the batches loaded before them, with
    their own traceback. After a crash, claimed units without a receipt are those that were lost.
    Works under the fork and spawn start methods, as long as each process makes its own queue.

    Raises InvalidKey for an identifier or learner ID that a store could not hold, ValueError for
    a number out of range, TypeError for units or a mailbox of another kind.
    """
    _check_kind("units", units, Mapping, "a mapping of identifiers to units, as grid() returns")
    _check_kind("mailbox", mailbox, Mailbox, "a mailbox, as open_mailbox() returns")
    for identifier in units:
        check_identifier(identifier)
    check_learner_id(learner_id)
    _check_at_least("prefetch", prefetch, 1)
    _check_at_least("claim_ahead", claim_ahead or 0, 0)
    _check_at_least("outage_seconds", outage_seconds, 0)
    _check_at_least("flush_seconds", flush_seconds, 0)
    return SharedQueue(
        units,
        mailbox=mailbox,
        learner_id=learner_id,
        load=load,
        prefetch=prefetch,
        claim_ahead=claim_ahead,
        outage_seconds=outage_seconds,
        flush_seconds=flush_seconds,
        receipts=receipts,
        observer=observer,
        clock=clock,
    )


def _check_kind(name: str, value: object, kind: type, expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {str(value)[:60]!r} ({type(value).__name__}): expected {expected}")


def _check_at_least(name: str, value: float, least: int) -> None:
    if not value >= least:  # so that not-a-number is refused too
        raise ValueError(f"{name} is {value}: expected at least {least}")
