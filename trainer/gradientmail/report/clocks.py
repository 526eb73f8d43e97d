"""How far the nodes' clocks are apart, as far as their receipts prove it. Pure.

Receipts carry times of the node's own clock, and a mailbox has no clock of its own. But claims
have an order that no clock can change: a node takes a unit of a later group of steps only once
it has seen every unit of the earlier groups claimed. So if learner B claimed a unit of an earlier
group than learner A did, B's claim came first, whatever their clocks say. All such pairs together
bound the difference of two clocks from both sides; where the bounds exclude zero, the clock is
corrected to their middle. Differences that contradict nothing stay, for there is no proof of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradientmail.progress import Receipt
from gradientmail.units import Unit

TOLERANCE_SECONDS = 2.0
"""A claim's time is taken when it is confirmed, some requests after the store decided on it."""

Claims = Sequence[tuple[int, float]]
"""(first dataset step of the unit, time of the claim), by step."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A clock is ahead of another by at least `low` and at most `high` seconds."""

    low: float = -math.inf
    high: float = math.inf

    def offset(self) -> float:
        """Return the correction that the bounds call for, 0 where they allow equal clocks."""
        if self.low <= TOLERANCE_SECONDS and self.high >= -TOLERANCE_SECONDS:
            return 0.0
        if math.isinf(self.low) or math.isinf(self.high):
            return self.low if math.isinf(self.high) else self.high
        return (self.low + self.high) / 2


def clock_offsets(receipts: Mapping[str, Receipt], units: Mapping[str, Unit]) -> dict[str, float]:
    """Return how many seconds each learner's clock is ahead of that of the learner with most receipts."""
    claims = _claims_by_learner(receipts, units)
    if not claims:
        return {}
    reference = max(claims.values(), key=len)
    return {learner: bounds(own, reference).offset() for learner, own in claims.items()}


def bounds(claims: Claims, reference: Claims) -> Bounds:
    """Return how far the clock behind `claims` can be ahead of the reference's."""
    low = max(_surpluses(claims, reference), default=-math.inf)
    high = -max(_surpluses(reference, claims), default=-math.inf)
    return Bounds(low, high)


def _surpluses(earlier: Claims, later: Claims) -> Iterator[float]:
    """Yield, for each later claim, by how much the latest claim of an earlier group seems to come after it."""
    latest, index = -math.inf, 0
    for first, time in later:
        while index < len(earlier) and earlier[index][0] < first:
            latest = max(latest, earlier[index][1])
            index += 1
        yield latest - time


def _claims_by_learner(receipts: Mapping[str, Receipt], units: Mapping[str, Unit]) -> dict[str, Claims]:
    claims: dict[str, list[tuple[int, float]]] = {}
    for identifier, receipt in receipts.items():
        if unit := units.get(identifier):
            claims.setdefault(receipt.learner, []).append((unit.first, receipt.claimed))
    return {learner: sorted(own) for learner, own in claims.items()}
