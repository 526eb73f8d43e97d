"""What a run came to: who trained how much, how long it took, and how long it could have taken. Pure.

Rates are measured: a node's batches over the time it was busy with them, waiting for data within
a unit included. `ideal_seconds` is the time in which nodes of these rates train these batches if
none is ever idle; `fixed_split_seconds` is the time in which they do if each is given an equal
part beforehand. Both start when the first node starts, as `makespan_seconds` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gradientmail.progress import NodeProgress, Receipt
from gradientmail.report.clocks import clock_offsets
from gradientmail.report.exchanged import Exchanged, StoredModel, exchanged, stored_model
from gradientmail.runstate import SILENT_AFTER_SECONDS, Learner, RunState, total_of


@dataclass(frozen=True, slots=True)
class Box:
    """A unit on the timeline. Times are seconds since the start of the run."""

    node: str
    identifier: str
    lane: int
    start: float
    finish: float
    batches: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """Units that a learner had claimed and not finished, from its last receipt to its latest heartbeat or farewell."""

    node: str
    units: int
    start: float
    finish: float
    lost: bool
    """False while their owner is still there."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One node's part in the run, over all the learners that ran on it."""

    node: str
    units: int = 0
    """Units trained."""
    batches: int = 0
    share: float = 0.0
    """Of all batches trained, 0 to 1."""
    busy_seconds: float = 0.0
    """Time spent on units, from their first batch to their last."""
    wait_seconds: float | None = None
    """Time the loop has waited for data, as the node counted it."""
    wait_share: float | None = None
    """Of the time the node was in its loop, 0 to 1."""
    batches_per_second: float | None = None
    lost_units: int = 0
    """Units it had claimed and nobody will train."""
    held_out_loss: float | None = None
    restarts: int = 0
    clock_offset_seconds: float = 0.0
    """By how much its clock was found to be ahead; times are corrected by it."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run as its mailbox tells it."""

    run: str
    total_units: int | None
    claimed_units: int
    consumed_units: int
    lost_units: int
    unclaimed_units: int | None
    batches: int
    started_at: float | None
    """Seconds since the epoch, on the clock of the node with most units."""
    makespan_seconds: float
    """From the first batch of the first node to the last of the last."""
    ideal_seconds: float | None
    fixed_split_seconds: float | None
    foreign_objects: int
    nodes: Sequence[NodeFigures]
    lost: Mapping[str, str] = field(default_factory=dict)
    """Node of each lost unit."""
    exchange: Exchanged | None = None
    """What the nodes have exchanged; None if nothing."""
    final_model: StoredModel | None = None
    """None if the run has none, or none yet."""
    boxes: Sequence[Box] = ()
    remainders: Sequence[Remainder] = ()

    @property
    def over_ideal(self) -> float | None:
        """Makespan over the ideal; 1 is perfect."""
        return self.makespan_seconds / self.ideal_seconds if self.ideal_seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures without the timeline's boxes, for JSON."""
        record = asdict(self)
        del record["boxes"], record["remainders"]
        return record | {"makespan_over_ideal": self.over_ideal}


def figures(state: RunState, *, silent_after: float = SILENT_AFTER_SECONDS) -> RunFigures:
    """Return the figures of a run that was read with its receipts."""
    receipts = state.receipts or {}
    offsets = clock_offsets(receipts, state.units)
    start = min((receipt.started - offsets.get(receipt.learner, 0.0) for receipt in receipts.values()), default=None)
    lost = state.lost(silent_after=silent_after)
    boxes = _boxes(state, receipts, offsets, start or 0.0)
    nodes = _nodes(state, boxes, offsets, lost)
    batches = sum(box.batches for box in boxes)
    rates = [node.batches_per_second for node in nodes if node.batches_per_second]
    return RunFigures(
        run=state.manifest.metadata.name if state.manifest else "run",
        total_units=state.total,
        claimed_units=len(state.claimed),
        consumed_units=len(state.consumed),
        lost_units=len(lost),
        unclaimed_units=state.unclaimed,
        batches=batches,
        started_at=start,
        makespan_seconds=max((box.finish for box in boxes), default=0.0),
        ideal_seconds=batches / sum(rates) if rates else None,
        fixed_split_seconds=batches / len(rates) / min(rates) if rates else None,
        foreign_objects=state.foreign.count,
        nodes=nodes,
        lost={identifier: state.node_of(owner) for identifier, owner in sorted(lost.items())},
        exchange=exchanged(state, silent_after=silent_after),
        final_model=stored_model(state),
        boxes=boxes,
        remainders=_remainders(state, receipts, offsets, start, set(lost)),
    )


def _boxes(state: RunState, receipts: Mapping[str, Receipt], offsets: Mapping[str, float], start: float) -> list[Box]:
    boxes = []
    for identifier, receipt in receipts.items():
        zero = start + offsets.get(receipt.learner, 0.0)
        unit = state.units.get(identifier)
        boxes.append(
            Box(
                node=state.node_of(receipt.learner),
                identifier=identifier,
                lane=unit.lane if unit else 0,
                start=receipt.started - zero,
                finish=max(receipt.started, receipt.finished) - zero,
                batches=receipt.batches,
            )
        )
    return sorted(boxes, key=lambda box: (box.start, box.identifier))


def _nodes(
    state: RunState, boxes: Sequence[Box], offsets: Mapping[str, float], lost: Mapping[str, str]
) -> list[NodeFigures]:
    learners = state.by_node()
    by_node: dict[str, list[Box]] = {name: [] for name in learners}
    for box in boxes:
        by_node[box.node].append(box)
    batches, dropped = sum(box.batches for box in boxes), Counter(lost.values())
    return [_node(name, own, by_node[name], batches, offsets, total_of(dropped, own)) for name, own in learners.items()]


def _node(
    name: str,
    learners: Sequence[Learner],
    boxes: Sequence[Box],
    all_batches: int,
    offsets: Mapping[str, float],
    lost: int,
) -> NodeFigures:
    batches, busy = sum(box.batches for box in boxes), sum(box.finish - box.start for box in boxes)
    words = sorted((learner.progress for learner in learners if learner.progress), key=lambda word: word.time)
    return NodeFigures(
        node=name,
        units=len(boxes),
        batches=batches,
        share=batches / all_batches if all_batches else 0.0,
        busy_seconds=busy,
        wait_seconds=sum(word.wait_seconds for word in words) if words else None,
        wait_share=_wait_share(words),
        batches_per_second=batches / busy if busy > 0 else None,
        lost_units=lost,
        held_out_loss=next((word.held_out_loss for word in reversed(words) if word.held_out_loss is not None), None),
        restarts=max(0, len(learners) - 1),
        clock_offset_seconds=max((offsets.get(learner.name, 0.0) for learner in learners), key=abs, default=0.0),
    )


def _wait_share(words: Sequence[NodeProgress]) -> float | None:
    waited = sum(word.wait_seconds for word in words)
    inside = waited + sum(word.train_seconds for word in words)
    return waited / inside if inside > 0 else None


def _remainders(
    state: RunState, receipts: Mapping[str, Receipt], offsets: Mapping[str, float], start: float | None, lost: set[str]
) -> list[Remainder]:
    units: dict[str, list[str]] = {}
    for identifier, owner in state.owners.items():
        units.setdefault(owner, []).append(identifier)
    finished: dict[str, float] = {}
    for receipt in receipts.values():
        finished[receipt.learner] = max(finished.get(receipt.learner, receipt.finished), receipt.finished)
    return [
        remainder
        for owner, identifiers in sorted(units.items())
        if (remainder := _remainder(state, owner, identifiers, finished.get(owner), offsets, start, lost))
    ]


def _remainder(
    state: RunState,
    owner: str,
    identifiers: Sequence[str],
    finished: float | None,
    offsets: Mapping[str, float],
    start: float | None,
    lost: set[str],
) -> Remainder | None:
    word = state.learners[owner].progress
    until = word.time if word else finished
    since = finished if finished is not None else until
    if since is None or until is None:
        return None
    zero = (start if start is not None else since) + offsets.get(owner, 0.0)
    return Remainder(
        node=state.node_of(owner),
        units=len(identifiers),
        start=since - zero,
        finish=max(since, until) - zero,
        lost=identifiers[0] in lost,
    )
