"""What one node knows of the claims on a mapping of units. Pure: no I/O, no clock, one thread."""

from __future__ import annotations

from collections.abc import Iterable


class Ledger:
    """The units not known to be claimed, in claiming order, and where a listing has to start.

    Claims are permanent, so knowledge only grows. Whatever order a node claims in, a listing
    starts at the smallest identifier that is not yet known to be claimed: nodes work through
    the grid from its beginning, so what lies beyond does not grow with the run.
    """

    def __init__(self, identifiers: Iterable[str]) -> None:
        self._order = list(identifiers)
        self._sorted = sorted(self._order, key=str.encode)
        self._units = frozenset(self._order)
        self._claimed: set[str] = set()
        self._next = 0
        self._smallest = 0

    def learn(self, identifier: str) -> None:
        """Record that a unit is claimed, by whomever. Identifiers of other mappings are ignored."""
        if identifier in self._units:
            self._claimed.add(identifier)

    def candidate(self) -> str | None:
        """Return the first unit in claiming order that is not known to be claimed; None when all are."""
        self._next = self._skip(self._order, self._next)
        return self._order[self._next] if self._next < len(self._order) else None

    def listing_start(self) -> str:
        """Return the identifier to list after, so that every unit not known to be claimed is covered."""
        self._smallest = self._skip(self._sorted, self._smallest)
        return self._sorted[self._smallest - 1] if self._smallest else ""

    def predecessor(self, identifier: str) -> str:
        """Return the identifier to list after, so that this one comes first."""
        low, high = 0, len(self._sorted)
        wanted = identifier.encode()
        while low < high:
            middle = (low + high) // 2
            if self._sorted[middle].encode() < wanted:
                low = middle + 1
            else:
                high = middle
        return self._sorted[low - 1] if low else ""

    def _skip(self, identifiers: list[str], position: int) -> int:
        while position < len(identifiers) and identifiers[position] in self._claimed:
            position += 1
        return position
