"""Simulation of the shared queue: who trains which unit when, at given speeds. Pure; runs nothing.

A node trains its batches one after another. Its loader claims the next unit as soon as at most
`claim_ahead` of the batches that it has claimed are still untrained, the one in use included;
without `claim_ahead` that is `prefetch`, for the loader claims once the buffer has room for a
batch. Claims and loading take no time here, so a node is idle only when no unit is left.

Times are in the unit that the speeds are given in: batches per second give seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from gradientmail.units import Unit


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node by name, and its speeds: each (from this time on, batches per time), the first from 0."""

    name: str
    speeds: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        times = [time for time, _ in self.speeds]
        if not times or times[0] != 0 or times != sorted(times):
            raise ValueError(f"speeds of {self.name} start at {times}: the first must start at 0, the others later")
        for _, speed in self.speeds:
            if not 0 < speed < math.inf:
                raise ValueError(f"speed of {self.name} is {speed}: it must be above 0")

    @classmethod
    def steady(cls, name: str, speed: float) -> Self:
        """Return a node whose speed never changes."""
        return cls(name, ((0.0, speed),))

    def trained(self, time: float) -> float:
        """Return how many batches the node trains up to `time` if it never waits."""
        return sum(speed * (min(time, end) - start) for start, end, speed in self._stretches() if start < time)

    def moment(self, batches: float) -> float:
        """Return when the node is done with that many batches if it never waits."""
        left = batches
        for start, end, speed in self._stretches():
            if left <= speed * (end - start):
                return start + left / speed
            left -= speed * (end - start)
        raise AssertionError("the last stretch has no end")

    def _stretches(self) -> Iterable[tuple[float, float, float]]:
        ends = [time for time, _ in self.speeds[1:]] + [math.inf]
        for (start, speed), end in zip(self.speeds, ends, strict=True):
            yield start, end, speed


@dataclass(frozen=True, slots=True)
class TrainedUnit:
    """One unit of the simulated run, and its times."""

    identifier: str
    node: str
    claimed: float
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What came of it. `units` are in the order of their claims."""

    units: tuple[TrainedUnit, ...]
    units_of: dict[str, int]
    """Units of each node, in the nodes' order."""
    finished: dict[str, float]
    """When each node was done with its last unit."""
    ideal: float
    """When the nodes would be done if work were divisible at will."""
    fixed_split: float
    """When they would be done if each had an equal share from the start."""

    @property
    def makespan(self) -> float:
        """When the last node was done."""
        return max(self.finished.values())

    @property
    def tail(self) -> float:
        """Time over the ideal, as a fraction of it."""
        return self.makespan / self.ideal - 1


def simulate(
    units: Mapping[str, Unit], nodes: Sequence[SimulatedNode], *, prefetch: int = 8, claim_ahead: int | None = None
) -> Simulation:
    """Run the shared queue over `units`, in their order; ties go to the node named first.

    Raises ValueError if there is no unit or no node, or two nodes share a name.
    """
    if not units or not nodes:
        raise ValueError("a simulation needs at least one unit and one node")
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError(f"two nodes share a name: {', '.join(sorted(node.name for node in nodes))}")
    ahead = prefetch if claim_ahead is None else min(claim_ahead, prefetch)
    trained = tuple(_claims(units, nodes, ahead))
    batches = sum(unit.count for unit in units.values())
    last = {unit.node: unit.finished for unit in trained}
    counts = dict.fromkeys((node.name for node in nodes), 0)
    for unit in trained:
        counts[unit.node] += 1
    return Simulation(
        units=trained,
        units_of=counts,
        finished={node.name: last.get(node.name, 0.0) for node in nodes},
        ideal=ideal_time(nodes, batches),
        fixed_split=max(node.moment(batches / len(nodes)) for node in nodes),
    )


def _claims(units: Mapping[str, Unit], nodes: Sequence[SimulatedNode], ahead: int) -> Iterable[TrainedUnit]:
    claimed = [0] * len(nodes)
    # The second entry lets nodes take turns where each claims several units at one moment, as at the start.
    ready = [(0.0, 0, index) for index in range(len(nodes))]
    for identifier, unit in units.items():
        now, turn, index = heapq.heappop(ready)
        node, before = nodes[index], claimed[index]
        after = claimed[index] = before + unit.count
        yield TrainedUnit(identifier, node.name, now, node.moment(before), node.moment(after))
        due = node.moment(max(0, after - ahead))
        heapq.heappush(ready, (due, turn + 1 if due == now else 0, index))


def ideal_time(nodes: Sequence[SimulatedNode], batches: float) -> float:
    """Return when all nodes together have trained that many batches, none of them ever idle."""
    changes = sorted({time for node in nodes for time, _ in node.speeds})
    start = max(time for time in changes if sum(node.trained(time) for node in nodes) <= batches)
    done = sum(node.trained(start) for node in nodes)
    speed = sum(next(speed for time, speed in reversed(node.speeds) if time <= start) for node in nodes)
    return start + (batches - done) / speed
