"""What a node says of itself: in its heartbeats, its termination message and its JSON log.

One record, so that the local screen, the status of a run, the report and the controller all
read the same fields.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from gradientmail.plain_json import dumps, number

HEARTBEAT_SECONDS = 15.0
"""Seconds between a node's heartbeats; each writes one object and deletes the one before."""

Phase = Literal["starting", "training", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class ExchangeCounts:
    """What a node has exchanged with the others since it joined; a fragment's rounds count one by one."""

    contributions: int = 0
    """Contributions published."""
    merged: int = 0
    """Contributions that an adopted version holds."""
    missed: int = 0
    """Contributions that came too late or were refused; their work was offered again."""
    adopted: int = 0
    """Versions adopted."""
    skipped: int = 0
    """Versions passed over because a newer one was there."""
    closed: int = 0
    """Rounds that this node has merged and tried to close."""
    refused: int = 0
    """Objects refused as damaged or foreign."""
    versions: tuple[int, ...] = ()
    """The version held, by fragment."""
    staleness_steps: int = 0
    """Own steps between contributing to the version adopted last, or the adoption before, and its adoption."""
    staleness_steps_total: int = 0
    """The same summed over all adoptions; divided by `adopted` it is the mean."""
    sent_bytes: int = 0
    """Bytes of blobs written."""
    received_bytes: int = 0
    """Bytes of blobs read."""
    requests: int = 0
    """Requests to the mailbox."""
    blocked_seconds: float = 0.0
    """Time that the training loop has spent in the exchange."""
    final_samples: int = 0
    """Samples in the run's final model, if this node wrote it last; else 0."""


@dataclass(frozen=True, slots=True)
class ExchangeProgress(ExchangeCounts):
    """The same as a node tells it."""

    final_held_out_loss: float | None = None
    """Held-out loss of that final model."""

    @property
    def staleness_mean(self) -> float | None:
        """Mean staleness of all adoptions, in own steps; None before the first."""
        return self.staleness_steps_total / self.adopted if self.adopted else None

    @classmethod
    def from_fields(cls, value: dict[str, Any]) -> Self:
        """Read the fields of a record; those of a newer version are ignored. Raises TypeError or ValueError."""
        known = _known(cls, value)
        versions = tuple(known.pop("versions", ()))
        _ = sum(versions) + sum(known[name] for name in known.keys() - {"final_held_out_loss"})
        return cls(**{**known, **_losses(known, "final_held_out_loss")}, versions=versions)


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """One node's progress at `time` (seconds since the epoch, on the node's own clock)."""

    learner: str
    node: str
    time: float = 0.0
    phase: Phase = "starting"
    claimed: int = 0
    """Units this learner owns."""
    consumed: int = 0
    """Units it has trained to their last batch and written the receipt of."""
    conflicts: int = 0
    """Claims lost to another node."""
    batches: int = 0
    """Batches trained."""
    samples: int = 0
    """Tokens trained (the samples passed to session.step)."""
    step: int | None = None
    """Dataset step of the last batch."""
    loss: float | None = None
    """Training loss of the last logged step."""
    held_out_loss: float | None = None
    """Latest loss on held-out data."""
    buffered: int = 0
    """Batches loaded and not yet taken."""
    wait_seconds: float = 0.0
    """Time the loop has waited for data."""
    train_seconds: float = 0.0
    """Time the loop has spent on batches."""
    message: str = ""
    """Why it stopped or failed, one sentence."""
    exchange: ExchangeProgress | None = None
    """None for a node that exchanges nothing, or of a version that did not say."""

    def to_json(self) -> str:
        """Return the record on one line."""
        return dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> NodeProgress:
        """Read a record; fields of a newer version are ignored. Raises ValueError or TypeError if it is not one."""
        value = json.loads(text)
        if not isinstance(value, dict) or "learner" not in value or "node" not in value:
            raise ValueError(f"not a progress record: {str(value)[:80]!r}")
        exchange = value.get("exchange")
        told = ExchangeProgress.from_fields(exchange) if isinstance(exchange, dict) else None
        known = _known(cls, value)
        return cls(**{**known, **_losses(known, "loss", "held_out_loss"), "exchange": told})


@dataclass(frozen=True, slots=True)
class Receipt:
    """The object `consumed/{identifier}`: who trained a unit, and when on that node's clock."""

    learner: str
    batches: int
    """Batches of the unit that were trained."""
    claimed: float
    """When the claim was confirmed, seconds since the epoch."""
    started: float
    """When the loop took the unit's first batch."""
    finished: float
    """When the loop was done with its last."""

    def to_json(self) -> str:
        """Return the record on one line."""
        return dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Receipt:
        """Read a record; fields of a newer version are ignored. Raises ValueError if it is not one."""
        value = json.loads(text)
        if not isinstance(value, dict) or any(field.name not in value for field in fields(cls)):
            raise ValueError(f"not a receipt: {str(value)[:80]!r}")
        return cls(**_known(cls, value))


def _losses(known: dict[str, Any], *names: str) -> dict[str, float]:
    return {name: number(known[name]) for name in names if known.get(name) is not None}


def _known(cls: type[Any], value: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(cls)}
    return {name: item for name, item in value.items() if name in names}
