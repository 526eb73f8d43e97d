"""Units of a data grid: what a node reserves, and the identifiers that all nodes agree on.

A grid has `steps` dataset steps of `lanes` slices each. A unit is one lane over consecutive
steps. Everything here is pure: each node builds the same mapping from the same four numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

UnitT = TypeVar("UnitT")


@dataclass(frozen=True, slots=True)
class Unit:
    """Lane `lane` of `lanes` over the `count` dataset steps from `first` on."""

    first: int
    count: int
    lane: int
    lanes: int


def grid(*, steps: int, unit_steps: int, lanes: int, taper: bool = False, nodes: int | None = None) -> dict[str, Unit]:
    """Return every unit of the grid by identifier, in claiming order.

    Identifiers are `{group:06d}-{lane}.json`, where a group is `unit_steps` consecutive steps;
    the last group has what remains. They sort, as bytes, in claiming order.

    With `taper`, groups shrink towards single steps at the end (guided self-scheduling,
    Polychronopoulos and Kuck 1987), so that no node sits on a long unit when work runs out.

    Raises ValueError if a number is below 1.
    """
    for name, value in (("steps", steps), ("unit_steps", unit_steps), ("lanes", lanes)):
        if value < 1:
            raise ValueError(f"{name} is {value}: a grid needs at least 1")
    spans = _tapered(steps, unit_steps, lanes) if taper else _even(steps, unit_steps)
    groups = list(spans)
    width = len(str(lanes - 1))
    digits = max(6, len(str(len(groups) - 1)))
    return {
        f"{group:0{digits}d}-{lane:0{width}d}.json": Unit(first, count, lane, lanes)
        for group, (first, count) in enumerate(groups)
        for lane in range(lanes)
    }


def _even(steps: int, unit_steps: int) -> Iterator[tuple[int, int]]:
    for first in range(0, steps, unit_steps):
        yield first, min(unit_steps, steps - first)


def _tapered(steps: int, unit_steps: int, lanes: int) -> Iterator[tuple[int, int]]:
    raise NotImplementedError


def first_lane(units: Mapping[str, Unit], lane: int) -> dict[str, Unit]:
    """Return the same units with `lane` first within each group of steps: one node's preference.

    Identifiers stay the same, so nodes with different preferences share one queue. Nodes with
    different lanes rarely try the same unit at the same time. `lane` is taken modulo the
    number of lanes, so a node's index serves.
    """
    return dict(sorted(units.items(), key=lambda item: (item[1].first, (item[1].lane - lane) % item[1].lanes)))
