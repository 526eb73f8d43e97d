"""Where a run stands, from its state: one record for a person and for a program. Pure.

Every count says what it counts: a unit is unclaimed, in progress, consumed or lost, and the four
add up to the total. Where the number of units is too large to read every receipt, the nodes' own
counts are taken from their latest heartbeats, and `node_counts_from` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.report.exchanged import Exchanged, exchanged
from gradientmail.runstate import SILENT_AFTER_SECONDS, Learner, Presence, RunState, newest_of, total_of

Standing = Literal["waiting", "running", "complete", "ended", "unknown"]
"""No node yet; a node is live; all units consumed; no node left, units missing; no node that writes heartbeats."""

AHEAD_SECONDS = 5.0
"""A heartbeat from further in the future than this shows clocks that differ."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: its newest learner's words, and the units of all its learners."""

    node: str
    learner: str | None
    presence: Presence | Literal["not started"]
    phase: str | None
    """As the node reports: starting, training, finished, stopped or failed."""
    claimed: int
    consumed: int
    in_progress: int
    """Claimed, not consumed, and its learner has not gone."""
    lost: int
    step: int | None
    loss: float | None
    held_out_loss: float | None
    last_seen_seconds: float | None
    """Age of its latest word: the reader's clock minus the node's, never below 0."""
    clock_ahead_seconds: float
    """By how much its clock is ahead of the reader's at least; 0 where nothing shows it."""
    restarts: int
    message: str
    exchange: ExchangeProgress | None
    """What its newest learner has exchanged; None if nothing."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run at `read_at`, seconds since the epoch on the reader's clock."""

    run: str | None
    namespace: str | None
    standing: Standing
    read_at: float
    total: int | None
    """Units of the run; None if it was started without a manifest."""
    unclaimed: int | None
    claimed: int
    """In progress, consumed and lost."""
    in_progress: int
    consumed: int
    lost: int
    """Claimed by learners that have left, or that have been silent for `silent_after_seconds`."""
    percent_consumed: float | None
    estimated_seconds_left: float | None
    """Batches left over the rate of the live nodes so far; None while nobody trains."""
    silent_after_seconds: float
    node_counts_from: Literal["receipts", "heartbeats"]
    nodes: Sequence[NodeStatus]
    exchange: Exchanged | None
    """What the nodes have exchanged; None if nothing."""
    foreign_objects: int
    foreign_examples: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return asdict(self)


def run_status(state: RunState, *, silent_after: float = SILENT_AFTER_SECONDS) -> RunStatus:
    """Return where the run stands."""
    lost = state.lost(silent_after=silent_after)
    metadata = state.manifest.metadata if state.manifest else None
    return RunStatus(
        run=metadata.name if metadata else None,
        namespace=metadata.namespace if metadata else None,
        standing=_standing(state, silent_after),
        read_at=state.read_at,
        total=state.total,
        unclaimed=state.unclaimed,
        claimed=len(state.claimed),
        in_progress=len(state.owners) - len(lost),
        consumed=len(state.consumed),
        lost=len(lost),
        percent_consumed=round(100 * len(state.consumed) / state.total, 2) if state.total else None,
        estimated_seconds_left=_seconds_left(state, lost, silent_after),
        silent_after_seconds=silent_after,
        node_counts_from="heartbeats" if state.receipts is None else "receipts",
        nodes=_nodes(state, lost, silent_after),
        exchange=exchanged(state, silent_after=silent_after),
        foreign_objects=state.foreign.count,
        foreign_examples=state.foreign.examples,
    )


def _standing(state: RunState, silent_after: float) -> Standing:
    presences = {learner.presence(state.read_at, silent_after) for learner in state.learners.values()}
    if state.complete:
        return "complete"
    if "live" in presences:
        return "running"
    if presences == {"unknown"}:
        return "unknown"
    return "ended" if presences else "waiting"


def _seconds_left(state: RunState, lost: Mapping[str, str], silent_after: float) -> float | None:
    live = [each for each in state.learners.values() if each.presence(state.read_at, silent_after) == "live"]
    rate = sum(_batches_per_second(learner.progress) for learner in live if learner.progress)
    if rate <= 0 or not state.units:
        return None
    settled = state.consumed.union(lost)
    return sum(unit.count for identifier, unit in state.units.items() if identifier not in settled) / rate


def _batches_per_second(word: NodeProgress) -> float:
    seconds = word.train_seconds + word.wait_seconds
    return word.batches / seconds if seconds > 0 else 0.0


def _nodes(state: RunState, lost: Mapping[str, str], silent_after: float) -> list[NodeStatus]:
    consumed = _consumed(state)
    held, dropped = Counter(state.owners.values()), Counter(lost.values())
    return [_node(name, own, state, consumed, held, dropped, silent_after) for name, own in state.by_node().items()]


def _consumed(state: RunState) -> Mapping[str, int]:
    if state.receipts is not None:
        return Counter(receipt.learner for receipt in state.receipts.values())
    return {name: learner.progress.consumed for name, learner in state.learners.items() if learner.progress}


def _node(
    name: str,
    learners: Sequence[Learner],
    state: RunState,
    consumed: Mapping[str, int],
    held: Mapping[str, int],
    dropped: Mapping[str, int],
    silent_after: float,
) -> NodeStatus:
    newest = newest_of(learners)
    word = newest.progress if newest else None
    done, open_units, lost = (total_of(counts, learners) for counts in (consumed, held, dropped))
    return NodeStatus(
        node=name,
        learner=newest.name if newest else None,
        presence=newest.presence(state.read_at, silent_after) if newest else "not started",
        phase=word.phase if word else None,
        claimed=done + open_units,
        consumed=done,
        in_progress=open_units - lost,
        lost=lost,
        step=word.step if word else None,
        loss=word.loss if word else None,
        held_out_loss=word.held_out_loss if word else None,
        last_seen_seconds=newest.silence(state.read_at) if newest else None,
        clock_ahead_seconds=_ahead(word, state.read_at),
        restarts=max(0, len(learners) - 1),
        message=word.message if word else "",
        exchange=word.exchange if word else None,
    )


def _ahead(word: NodeProgress | None, now: float) -> float:
    ahead = word.time - now if word else 0.0
    return ahead if ahead > AHEAD_SECONDS else 0.0
