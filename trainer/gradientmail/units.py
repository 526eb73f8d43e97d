"""Units of a data grid: what a node reserves, and the identifiers that all nodes agree on.

A grid has `steps` dataset steps of `lanes` slices each. A unit is one lane over consecutive
steps. Everything here is pure: each node builds the same mapping from the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """Lane `lane` of `lanes` over the `count` dataset steps from `first` on."""

    first: int
    count: int
    lane: int
    lanes: int


def grid(*, steps: int, unit_steps: int, lanes: int, taper: bool = False) -> dict[str, Unit]:
    """Return every unit of the grid by identifier, in claiming order.

    Each sequence of the grid is in exactly one unit. Identifiers are `{group:06d}-{lane}.json`,
    where a group is `unit_steps` consecutive steps; the last group has what remains.

    With `taper`, groups shrink towards single steps at the end (guided self-scheduling,
    Polychronopoulos and Kuck 1987), so that no node sits on a long unit when work runs out.
    Groups are then numbered as they come, and lanes padded: identifiers sort in claiming order.

    All nodes of a run must use the same arguments: an identifier means other steps under others.

    Raises ValueError if a number is below 1.
    """
    for name, value in (("steps", steps), ("unit_steps", unit_steps), ("lanes", lanes)):
        if value < 1:
            raise ValueError(f"{name} is {value}: a grid needs at least 1")
    return _tapered_grid(steps, unit_steps, lanes) if taper else _even_grid(steps, unit_steps, lanes)


def _even_grid(steps: int, unit_steps: int, lanes: int) -> dict[str, Unit]:
    return {
        f"{first // unit_steps:06d}-{lane}.json": Unit(first, min(unit_steps, steps - first), lane, lanes)
        for first in range(0, steps, unit_steps)
        for lane in range(lanes)
    }


def _tapered_grid(steps: int, unit_steps: int, lanes: int) -> dict[str, Unit]:
    spans = list(tapered_spans(steps, unit_steps, lanes))
    group_digits = max(6, len(str(len(spans) - 1)))
    lane_digits = len(str(lanes - 1))
    return {
        f"{group:0{group_digits}d}-{lane:0{lane_digits}d}.json": Unit(first, count, lane, lanes)
        for group, (first, count) in enumerate(spans)
        for lane in range(lanes)
    }


def tapered_spans(steps: int, unit_steps: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of each group.

    A unit never exceeds an eighth of the steps left nor a 32nd of the batches left: a node is
    then done with it before the others run out, while it is no slower than an eighth of the
    average of as many nodes as lanes, or a 32nd of all nodes together where lanes are few.
    """
    divisor = max(8, -(-32 // lanes))
    first = 0
    while first < steps:
        count = max(1, min(unit_steps, (steps - first) // divisor))
        yield first, count
        first += count


def first_lane(units: Mapping[str, Unit], lane: int) -> dict[str, Unit]:
    """Return the same units with `lane` first within each group of steps: one node's preference.

    Identifiers and the order of groups stay the same, so nodes with different preferences share
    one queue, and rarely try the same unit at the same time. `lane` is taken modulo the number
    of lanes, so a node's index serves.
    """
    groups: dict[int, int] = {}
    for unit in units.values():
        groups.setdefault(unit.first, len(groups))
    return dict(sorted(units.items(), key=lambda item: (groups[item[1].first], (item[1].lane - lane) % item[1].lanes)))
