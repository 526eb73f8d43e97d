"""The claim protocol without its I/O: which request comes next, given the answers so far.

One claim is one run of `claim_steps`. The shared queue drives it over a mailbox; tests drive
many at once, in any order, with crashes and lost answers in between. Safety rests on two
facts of the store alone: an object is created at most once, and is read as it was created.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from gradientmail.mailbox.errors import MailboxMisconfigured
from gradientmail.patterns.ledger import Ledger

PAGE = 1000
"""Claims read from one listing: a page of S3."""

READ_BACK_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ListClaims:
    """List up to PAGE identifiers of claims, in the order of their bytes, after `after`."""

    after: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create the claim, if there is none. Repeated until the store answers; what it answers decides nothing."""

    identifier: str


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the claim's owner."""

    identifier: str


Step = ListClaims | Create | ReadBack
Answer = list[str] | str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """How an attempt to claim ended."""

    identifier: str | None
    """The unit that now belongs to this learner; None if every unit has an owner."""
    lost: tuple[str, ...] = ()
    """Units that another learner turned out to own after this one had tried."""


def claim_steps(ledger: Ledger, learner_id: str) -> Generator[Step, Answer, Claim]:
    """Claim the next unit: list the claims, create one, read it back; on a loss try the next unit.

    Raises MailboxMisconfigured if the store does not show an object that exists.
    """
    if ledger.candidate() is not None:
        yield from _listing(ledger)
    lost: list[str] = []
    while (candidate := ledger.candidate()) is not None:
        owner = yield from _reserving(candidate)
        ledger.learn(candidate)
        if owner == learner_id:
            return Claim(candidate, tuple(lost))
        lost.append(candidate)
    return Claim(None, tuple(lost))


def _listing(ledger: Ledger) -> Generator[Step, Answer, None]:
    after = ledger.listing_start()
    last = yield from _page(ledger, after)
    candidate = ledger.candidate()
    if last is not None and candidate is not None and candidate.encode() > last.encode():
        yield from _page(ledger, ledger.predecessor(candidate))


def _page(ledger: Ledger, after: str) -> Generator[Step, Answer, str | None]:
    """Learn one page; return its last identifier if there may be more behind it."""
    claimed = yield ListClaims(after)
    assert isinstance(claimed, list)
    for identifier in claimed:
        ledger.learn(identifier)
    return claimed[-1] if len(claimed) >= PAGE else None


def _reserving(candidate: str) -> Generator[Step, Answer, str]:
    for _ in range(READ_BACK_ATTEMPTS):
        yield Create(candidate)
        owner = yield ReadBack(candidate)
        if isinstance(owner, str):
            return owner
    raise MailboxMisconfigured(
        f"the store says that units/{candidate} exists but does not return it: "
        "a shared queue needs a store that reads back what was written; check it with `gradientmail doctor`"
    )
