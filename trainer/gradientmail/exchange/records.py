"""The records of the exchange, and how they are read: anything that is not one is refused by name. No torch, no I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

PROTOCOL = 1
"""Raised with every change that older nodes would misread."""

DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


class RecordRefused(ValueError):
    """An object is not the record that its key promises; the message names the key and what is wrong."""


class Work(NamedTuple):
    """Steps and samples of one learner, cumulative or between two moments."""

    steps: int = 0
    samples: int = 0

    def since(self, earlier: Work) -> Work:
        """Return the work done since an earlier moment."""
        return Work(self.steps - earlier.steps, self.samples - earlier.samples)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The options that must be the same on every node of a run; the run's first node sets them."""

    sync_every: int
    fragments: int
    outer_lr: float
    outer_momentum: float
    transfer_dtype: str


@dataclass(frozen=True, slots=True)
class TensorShape:
    """One exchanged parameter. The type is that of the run's first node; others may hold another."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Founding:
    """`exchange/run.json`: what the run's first node set, and version 0 of every fragment."""

    founder: str
    agreement: Agreement
    layout: tuple[tuple[TensorShape, ...], ...]
    """Parameters of each fragment, in the order of its blobs."""
    parameters: tuple[str, ...]
    """Digest of version 0 of each fragment."""

    def to_json(self) -> bytes:
        """Return the record's bytes."""
        return _dump({"protocol": PROTOCOL, **asdict(self)})

    @classmethod
    def from_json(cls, key: str, data: bytes) -> Founding:
        """Read a record. Raises RecordRefused."""
        return _read(key, data, lambda value: _founding(value))


@dataclass(frozen=True, slots=True)
class Member:
    """`exchange/members/{learner}`: a learner that has joined and not left."""

    learner: str
    process: str
    """Unique to one process, so that a second one with the same learner ID is found out."""
    joined: tuple[int, ...]
    """The version of each fragment that it started from."""

    def to_json(self) -> bytes:
        """Return the record's bytes."""
        return _dump(asdict(self))

    @classmethod
    def from_json(cls, key: str, data: bytes) -> Member:
        """Read a record. Raises RecordRefused."""
        return _read(
            key,
            data,
            lambda value: cls(_text(value["learner"]), _text(value["process"]), tuple(map(_count, value["joined"]))),
        )


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a learner offers to a round: the blob with its delta, and the work since its last merged contribution."""

    learner: str
    fragment: int
    version: int
    """The version that the round makes; the delta is against the one before."""
    delta: str
    steps: int
    samples: int
    last: bool = False
    """Whether the learner leaves: then the round covers what is left over, and moves without momentum."""

    def to_json(self) -> bytes:
        """Return the record's bytes."""
        return _dump(asdict(self))

    @classmethod
    def from_json(cls, key: str, data: bytes, *, learner: str, fragment: int, version: int) -> Contribution:
        """Read a record that must be this learner's for this round. Raises RecordRefused."""

        def build(value: Mapping[str, Any]) -> Contribution:
            record = cls(
                _text(value["learner"]),
                _count(value["fragment"]),
                _count(value["version"]),
                _digest(value["delta"]),
                _count(value["steps"]),
                _count(value["samples"]),
                value["last"] is True,
            )
            if (record.learner, record.fragment, record.version) != (learner, fragment, version):
                raise ValueError("it belongs to another key")
            if not record.samples:
                raise ValueError("it covers no samples")
            return record

        return _read(key, data, build)


@dataclass(frozen=True, slots=True)
class Share:
    """What a learner has put into a chain so far."""

    version: int
    """The last version that merged a contribution of its."""
    steps: int
    samples: int


@dataclass(frozen=True, slots=True)
class Version:
    """The record that closes a round: which blobs hold the version and whose contributions are in it."""

    fragment: int
    version: int
    closer: str
    parameters: str
    """Digest of the parameters, float32."""
    momentum: str | None = None
    """Digest of the outer momentum, float32; None where it is zero."""
    step: str | None = None
    """Digest of the difference to the version before, in the transfer type; None if that is float32."""
    merged: tuple[str, ...] = ()
    """Learners whose contributions to this round are in it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Learners whose contributions were unusable, and why."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """Every learner that has ever contributed: one that slept over any number of versions learns what was merged."""

    def merges(self, learner: str, version: int) -> bool:
        """Whether the learner's contribution to the round of `version`, its latest, is in these parameters."""
        share = self.shares.get(learner)
        return share is not None and share.version == version

    @property
    def work(self) -> Work:
        """All work in these parameters."""
        shares = self.shares.values()
        return Work(sum(share.steps for share in shares), sum(share.samples for share in shares))

    def to_json(self) -> bytes:
        """Return the record's bytes."""
        return _dump(asdict(self))

    @classmethod
    def from_json(cls, key: str, data: bytes, *, fragment: int, version: int) -> Version:
        """Read a record that must be of this version. Raises RecordRefused."""

        def build(value: Mapping[str, Any]) -> Version:
            record = cls(
                fragment=_count(value["fragment"]),
                version=_count(value["version"]),
                closer=_text(value["closer"]),
                parameters=_digest(value["parameters"]),
                momentum=None if value["momentum"] is None else _digest(value["momentum"]),
                step=None if value["step"] is None else _digest(value["step"]),
                merged=tuple(map(_text, value["merged"])),
                refused={_text(name): _text(why) for name, why in value["refused"].items()},
                shares={_text(name): _share(share) for name, share in value["shares"].items()},
            )
            if (record.fragment, record.version) != (fragment, version):
                raise ValueError("it belongs to another key")
            return record

        return _read(key, data, build)


def first_version(founding: Founding, fragment: int) -> Version:
    """Return version 0 of a fragment, which no round has made."""
    return Version(fragment, 0, founding.founder, founding.parameters[fragment])


def shares_after(before: Version, merged: tuple[Contribution, ...]) -> dict[str, Share]:
    """Return the shares of the version that merges these contributions into the one before."""
    shares = dict(before.shares)
    for contribution in merged:
        earlier = shares.get(contribution.learner, Share(0, 0, 0))
        shares[contribution.learner] = Share(
            before.version + 1, earlier.steps + contribution.steps, earlier.samples + contribution.samples
        )
    return shares


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(key: str, data: bytes, build: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        return build(json.loads(data))
    except RecordRefused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordRefused(f"{key} is not what an exchange writes there: {_why(error)}") from None


def _why(error: Exception) -> str:
    match error:
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "it is not JSON"
        case KeyError():
            return f"it has no field {error}"
        case TypeError() | AttributeError():
            return "a field has the wrong type"
        case _:
            return str(error)


def _founding(value: Mapping[str, Any]) -> Founding:
    if value["protocol"] != PROTOCOL:
        raise ValueError(
            f"it is of protocol {value['protocol']}, this node speaks {PROTOCOL}: "
            "run one version of gradientmail on every node"
        )
    options = value["agreement"]
    founding = Founding(
        founder=_text(value["founder"]),
        agreement=Agreement(**{item.name: options[item.name] for item in fields(Agreement)}),
        layout=tuple(tuple(map(_shape, fragment)) for fragment in value["layout"]),
        parameters=tuple(map(_digest, value["parameters"])),
    )
    if not founding.layout or len(founding.layout) != len(founding.parameters):
        raise ValueError("its fragments and their digests do not match")
    return founding


def _shape(value: Mapping[str, Any]) -> TensorShape:
    return TensorShape(_text(value["name"]), tuple(map(_count, value["shape"])), _text(value["dtype"]))


def _share(value: Mapping[str, Any]) -> Share:
    return Share(_count(value["version"]), _count(value["steps"]), _count(value["samples"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} should be text")  # noqa: TRY004 - a malformed record, not a caller's type
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise ValueError(f"{value!r} should be a SHA-256 digest")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} should be a count")
    return value
