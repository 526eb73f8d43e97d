"""What the nodes' log lines tell over the whole run: units claimed and consumed, and the loss at each logged step.

One thread notes lines; any thread may take copies. Nothing here waits for anything but another's copy.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradientmail.local.watching import record_of
from gradientmail.report.charts import Point

MOST_POINTS = 4000
"""Points of a node's loss; with more, every other one is dropped."""


@dataclass(frozen=True)
class Told:
    """A copy of a history."""

    claimed: Mapping[str, str]
    """Node of each unit claimed."""
    consumed: Mapping[str, str]
    """Node of each unit whose receipt is in the mailbox."""
    loss: Mapping[str, Sequence[Point]]
    """(dataset step, training loss) of each node."""
    receipts: Mapping[str, int]
    """How many receipts each node has written; no entry for none."""


class History:
    """Grows with the lines that it is told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: dict[str, str] = {}
        self._consumed: dict[str, str] = {}
        self._loss: dict[str, list[Point]] = {}

    def note(self, node: str, text: str) -> None:
        """Take in a line of a node's output."""
        match record_of(text):
            case {"event": "unit-claimed", "unit": str(unit)}:
                with self._lock:
                    self._claimed[unit] = node
            case {"event": "unit-consumed", "unit": str(unit)}:
                with self._lock:
                    self._consumed[unit] = node
            case {"event": "progress", "progress": dict(fields)}:
                self._note_loss(node, fields)

    def told(self) -> Told:
        """Return a copy."""
        with self._lock:
            loss = {node: tuple(points) for node, points in self._loss.items()}
            return Told(dict(self._claimed), dict(self._consumed), loss, Counter(self._consumed.values()))

    def _note_loss(self, node: str, fields: Mapping[str, Any]) -> None:
        match fields:
            case {"step": int(step), "loss": int() | float() as loss} if math.isfinite(loss):
                pass
            case _:
                return
        with self._lock:
            points = self._loss.setdefault(node, [])
            # Progress is written every second, the loss at logged steps alone: the same value again is no news.
            if points and points[-1][1] == loss:
                return
            points.append((float(step), float(loss)))
            if len(points) > MOST_POINTS:
                del points[1:-1:2]
