"""What every learner of a run has claimed and consumed, kept in the run's status. Pure.

A record per pod that exists, and one per node, under an empty pod name, that sums the pods which
are gone. Counts of a live learner come from its /metrics; those of an ended one from its
termination message, which is exact. Of one that ends without a word, or whose pod goes while no
controller is there to read it, the last counts stand: what it did after them counts as lost. So
counts may fall short of what the bucket holds, and never exceed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gradientmail.run import Data
from gradientmail.run_status import MOST_LEARNERS
from gradientmail.units import tapered_spans
from gradientrun.observed import Counts, PodView


@dataclass(frozen=True, slots=True)
class Record:
    """Units that a learner, or all of a node's past learners together, have claimed and consumed."""

    node: str
    pod: str
    claimed: int = 0
    consumed: int = 0

    @property
    def unfinished(self) -> int:
        """Units claimed and not consumed: lost once the learner has ended."""
        return max(0, self.claimed - self.consumed)

    def plus(self, other: Record) -> Record:
        """Return the record with another's counts added."""
        return replace(self, claimed=self.claimed + other.claimed, consumed=self.consumed + other.consumed)


def read_records(status: Mapping[str, Any]) -> list[Record]:
    """Return the records that a status holds."""
    return [
        Record(item["node"], item.get("pod", ""), int(item.get("claimed", 0)), int(item.get("consumed", 0)))
        for item in status.get("learners") or []
    ]


def write_records(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the records as a status holds them."""
    return [
        {"node": record.node, "pod": record.pod, "claimed": record.claimed, "consumed": record.consumed}
        for record in records
    ]


def updated(before: Iterable[Record], pods: Iterable[PodView], counts: Mapping[str, Counts]) -> list[Record]:
    """Return the records with what is known now: counts never fall, and pods that are gone are summed per node."""
    known = {record.pod: record for record in before if record.pod}
    gone = {record.node: record for record in before if not record.pod}
    # A pod that is gone and has no record is in its node's sum already: another controller has put it there.
    present = {pod.name: pod for pod in pods if pod.name in known or not pod.gone}
    for name, record in known.items():
        if name not in present:
            gone[record.node] = gone.get(record.node, Record(record.node, "")).plus(record)
    current = [_counted(pod, known.get(pod.name), counts.get(pod.name)) for pod in present.values()]
    return sorted([*gone.values(), *current], key=lambda record: (record.node, record.pod))


def kept(records: Sequence[Record], pods: Iterable[PodView]) -> list[Record]:
    """Return the records to write: all, or as many as a status can hold.

    Those that go first can be made again while their pods exist: of learners that have ended with last words, or
    without ever having claimed anything. Their counts are missed only once such a pod is deleted.
    """
    surplus = len(records) - MOST_LEARNERS
    if surplus <= 0:
        return list(records)
    claimed = {record.pod: record.claimed for record in records}
    ended = [pod.name for pod in pods if pod.over and (pod.final is not None or not claimed.get(pod.name))]
    dropped = frozenset(sorted(ended)[:surplus])
    return [record for record in records if record.pod not in dropped]


def _counted(pod: PodView, before: Record | None, counts: Counts | None) -> Record:
    record = before or Record(pod.node, pod.name)
    final = pod.final
    if final is not None:
        return replace(record, claimed=final.claimed, consumed=final.consumed)
    if counts is None:
        return record
    return replace(record, claimed=max(record.claimed, counts.claimed), consumed=max(record.consumed, counts.consumed))


@dataclass(frozen=True, slots=True)
class Units:
    """The run's units."""

    total: int
    claimed: int
    consumed: int
    lost: int
    """Claimed by learners that have ended, and not consumed by them."""

    @property
    def percent(self) -> int:
        """Consumed of all, rounded down, so that 100 means all."""
        return 100 * self.consumed // self.total


def tally(total: int, records: Iterable[Record], live: frozenset[str], *, exhausted: bool, settled: bool) -> Units:
    """Return the run's units. `live` names the pods whose learners may still finish what they hold.

    `exhausted`: a node has found nothing left to claim, so every unit has an owner. `settled`: none of
    the owners can be training any more, so what is not consumed is lost, even where a learner was
    killed between a claim and anyone's seeing it. Before, counts a few seconds old prove nothing.
    """
    items = list(records)
    consumed = min(total, sum(record.consumed for record in items))
    claimed = total if exhausted else min(total, sum(record.claimed for record in items))
    lost = sum(record.unfinished for record in items if record.pod not in live)
    return Units(
        total=total,
        claimed=claimed,
        consumed=consumed,
        lost=total - consumed if settled else min(lost, total - consumed),
    )


@lru_cache(maxsize=256)
def unit_count(data: Data) -> int:
    """Return how many units the grid has."""
    if not data.taper:
        return data.even_units
    # The grid itself, of a million units, would take more memory than the controller has.
    return data.lanes * sum(1 for _ in tapered_spans(data.steps, data.unit_steps, data.lanes))


def most_lost(limit: str, total: int) -> int:
    """Return the most units that may be lost, of a number or a percentage, rounded down."""
    return total * int(limit[:-1]) // 100 if limit.endswith("%") else int(limit)
