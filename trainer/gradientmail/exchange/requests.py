"""What the protocol asks of whoever drives it, and what it is answered. Pure.

The first four are the mailbox's verbs, repeated until the store answers; what a creation answers
decides nothing. The others are about numbers, of which the protocol knows nothing but digests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gradientmail.exchange.chain import Adoption
from gradientmail.exchange.records import Contribution, Version


@dataclass(frozen=True, slots=True)
class ListKeys:
    """List every key with this prefix after `after`. Answer: list[str]."""

    prefix: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Read an object. Answer: bytes, or None."""

    key: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object, if there is none. No answer."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete objects. No answer."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Write the learner's own parameters as version 0. Answer: Founded."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Download a version and make it ready for adoption. Answer: Fetched."""

    version: Version
    anchor: Version | None
    """What the learner holds; None when it joins."""
    merged: bool = False
    """Whether the version holds the learner's pending contribution."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the blob of the learner's delta, from the parameters taken for this round. Answer: its digest."""

    fragment: int
    version: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge contributions into the anchor and write the blobs of the next version. Answer: Merging."""

    anchor: Version
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Say that an object was refused. No answer."""

    key: str
    why: str


Request = ListKeys | Read | Create | Remove | Found | Fetch | Publish | Merge | Refused


@dataclass(frozen=True, slots=True)
class Together:
    """Make several requests at the same time; none depends on another. Answer: a tuple of theirs."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Founded:
    """Digests of version 0 of every fragment."""

    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whether a version is ready. Not ready and no problem: a blob is gone, for the version is old."""

    ready: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Merging:
    """The blobs of a version, and what could be merged. A learner that is far behind may find blobs gone
    that others have merged; its version then comes too late as well."""

    parameters: str
    momentum: str | None = None
    step: str | None = None
    merged: tuple[Contribution, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


Answer = list[str] | bytes | str | Founded | Fetched | Merging | None

T = TypeVar("T")
Conversation = Generator[Request | Together, Answer | tuple[Answer, ...], T]
"""Yields requests, is sent their answers, and returns how it ended."""


def together(conversations: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Hold several conversations at once, which do not depend on each other; return how each ended.

    What they ask at the same moment is asked together, so that they take as long as the longest
    of them. Raises what one of them raises, and the others go no further.
    """
    ended: dict[int, T] = {}
    answers: dict[int, Answer | tuple[Answer, ...]] = dict.fromkeys(range(len(conversations)))
    while answers:
        asked: dict[int, Request | Together] = {}
        for index, answer in answers.items():
            try:
                asked[index] = conversations[index].send(answer)
            except StopIteration as end:
                ended[index] = end.value
        answers = dict(zip(asked, (yield from _asked_together(list(asked.values()))), strict=True))
    return [ended[index] for index in range(len(conversations))]


def in_turn(conversations: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Hold several conversations one after the other; return how each ended."""
    ended: list[T] = []
    for conversation in conversations:
        ended.append((yield from conversation))
    return ended


def _asked_together(asked: Sequence[Request | Together]) -> Conversation[list[Answer | tuple[Answer, ...]]]:
    parts = [item.requests if isinstance(item, Together) else (item,) for item in asked]
    requests = tuple(request for part in parts for request in part)
    if not requests:
        return [() for _ in asked]
    answer = yield requests[0] if len(requests) == 1 else Together(requests)
    answers = iter(answer if isinstance(answer, tuple) else (answer,))
    told = [tuple(next(answers) for _ in part) for part in parts]
    return [item if isinstance(one, Together) else item[0] for one, item in zip(asked, told, strict=True)]


def reading(key: str) -> Conversation[bytes | None]:
    """Read an object."""
    data = yield Read(key)
    assert data is None or isinstance(data, bytes)
    return data


@dataclass(frozen=True, slots=True)
class Take:
    """The training thread must copy a fragment's parameters, for the round of `version`."""

    fragment: int
    version: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """The training thread must take over the version that was made ready."""

    fragment: int
    adoption: Adoption


Instruction = Take | Adopt
