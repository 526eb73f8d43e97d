"""What the protocol asks of whoever drives it, and what it is answered. Pure.

The first four are the mailbox's verbs, repeated until the store answers; what a creation answers
decides nothing. The others are about numbers, of which the protocol knows nothing but digests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
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
Conversation = Generator[Request, Answer, T]


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
