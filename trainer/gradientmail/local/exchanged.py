"""What the nodes of a local run have exchanged, as one record and as a line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from gradientmail.local.watching import NodeView
from gradientmail.progress import ExchangeProgress
from gradientmail.report.words import count, number, size


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Totals over the nodes; versions are those of the fragments that are furthest behind and furthest ahead."""

    lowest_version: int
    highest_version: int
    merged: int
    missed: int
    mean_staleness_steps: float | None
    """Own steps between a contribution and the adoption of its version, mean over all adoptions."""
    sent_bytes: int
    received_bytes: int
    refused: int
    blocked_seconds: float

    @classmethod
    def of(cls, views: Iterable[NodeView]) -> Self | None:
        """Return the totals, or None if no node has exchanged anything yet."""
        told = [view.progress.exchange for view in views if view.progress and view.progress.exchange]
        versions = [version for each in told for version in each.versions]
        if not versions:
            return None
        adopted = sum(each.adopted for each in told)
        return cls(
            lowest_version=min(versions),
            highest_version=max(versions),
            merged=sum(each.merged for each in told),
            missed=sum(each.missed for each in told),
            mean_staleness_steps=sum(each.staleness_steps_total for each in told) / adopted if adopted else None,
            sent_bytes=sum(each.sent_bytes for each in told),
            received_bytes=sum(each.received_bytes for each in told),
            refused=sum(each.refused for each in told),
            blocked_seconds=round(sum(each.blocked_seconds for each in told), 3),
        )

    @property
    def line(self) -> str:
        """The totals for a person."""
        low, high = self.lowest_version, self.highest_version
        versions = f"version {low:,}" if low == high else f"versions {low:,} to {high:,}"
        refused = f", {count(self.refused, 'object')} refused" if self.refused else ""
        return (
            f"{versions}, mean staleness {number(self.mean_staleness_steps, 1)} steps, "
            f"{size(self.sent_bytes)} sent, {size(self.received_bytes)} received{refused}"
        )


@dataclass(frozen=True, slots=True)
class FinalModel:
    """The model that the last node to leave has written."""

    node: str
    samples: int
    held_out_loss: float | None

    @classmethod
    def of(cls, views: Iterable[NodeView]) -> Self | None:
        """Return the one of most samples, since it has replaced the others; None if no node here has written one."""
        written = [
            cls(view.node, exchange.final_samples, exchange.final_held_out_loss)
            for view in views
            if (exchange := exchange_of(view)) and exchange.final_samples
        ]
        return max(written, key=lambda model: (model.samples, model.held_out_loss is not None), default=None)

    @property
    def words(self) -> str:
        """How good it is and what it is made from."""
        loss = f"held-out loss {self.held_out_loss:.4f}, " if self.held_out_loss is not None else ""
        return f"{loss}{count(self.samples)} tokens"


def exchange_of(view: NodeView) -> ExchangeProgress | None:
    """Return what a node says of its exchange."""
    return view.progress.exchange if view.progress else None
