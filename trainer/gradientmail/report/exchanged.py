"""What the nodes of a run have exchanged, and the model that came of it, as records and as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from gradientmail.layout import FINAL
from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.report.words import count, number, size
from gradientmail.runstate import SILENT_AFTER_SECONDS, RunState, newest_of


class Teller(Protocol):
    """A node, or a learner on it, and its latest word."""

    @property
    def node(self) -> str:
        """Name of the node."""
        ...

    @property
    def progress(self) -> NodeProgress | None:
        """The latest word; None before the first."""
        ...


NO_MODEL = "no final one yet; `gradientmail export` puts the newest versions together"


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
    def of(cls, tellers: Iterable[Teller]) -> Self | None:
        """Return the totals, or None if no node has exchanged anything yet."""
        told = [exchange for each in tellers if (exchange := exchange_of(each))]
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
    def of(cls, tellers: Iterable[Teller]) -> Self | None:
        """Return the one of most samples, since it has replaced the others; None if no node here has written one."""
        written = [
            cls(each.node, exchange.final_samples, exchange.final_held_out_loss)
            for each in tellers
            if (exchange := exchange_of(each)) and exchange.final_samples
        ]
        return max(written, key=lambda model: (model.samples, model.held_out_loss is not None), default=None)

    @property
    def words(self) -> str:
        """How good it is and what it is made from."""
        loss = f"held-out loss {self.held_out_loss:.4f}, " if self.held_out_loss is not None else ""
        return f"{loss}{count(self.samples)} tokens"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The final model in a run's mailbox, as far as its nodes' words tell of it."""

    key: str
    contributors: Sequence[str]
    """Nodes that say that a version they have adopted holds work of theirs."""
    written: FinalModel | None
    """None if the node that wrote it has not said so: it may have been killed."""

    @property
    def line(self) -> str:
        """The model for a person."""
        words = self.written.words if self.written else "not described by the node that wrote it"
        return f"{self.key}: {words}, from {', '.join(self.contributors) or 'unknown nodes'}"


def exchange_of(teller: Teller) -> ExchangeProgress | None:
    """Return what a node says of its exchange."""
    return teller.progress.exchange if teller.progress else None


def exchanged(state: RunState, *, silent_after: float = SILENT_AFTER_SECONDS) -> Exchanged | None:
    """Return the totals over all learners; the versions are those of the live ones, or of each node's last.

    None if no node has exchanged anything.
    """
    everyone = list(state.learners.values())
    totals = Exchanged.of(everyone)
    live = [each for each in everyone if each.presence(state.read_at, silent_after) == "live"]
    last = [learner for own in state.by_node().values() if (learner := newest_of(own))]
    there = Exchanged.of(live) or Exchanged.of(last)
    if totals is None or there is None:
        return totals
    return replace(totals, lowest_version=there.lowest_version, highest_version=there.highest_version)


def stored_model(state: RunState) -> StoredModel | None:
    """Return the run's final model; None if it has none."""
    if not state.has_final_model:
        return None
    contributors = [node for node, own in state.by_node().items() if any(_merged(each) for each in own)]
    return StoredModel(FINAL, contributors, FinalModel.of(state.learners.values()))


def _merged(teller: Teller) -> int:
    exchange = exchange_of(teller)
    return exchange.merged if exchange else 0


def exchange_lines(totals: Exchanged | None, model: StoredModel | None) -> list[str]:
    """Return what a run has exchanged and what came of it, a sentence a line; nothing without an exchange."""
    if totals is None:
        return []
    return [f"exchange: {totals.line}", f"model: {model.line if model else NO_MODEL}"]
