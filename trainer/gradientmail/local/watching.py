"""What the nodes' log lines say of them. Pure: each line makes the next view."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradientmail.plain_json import number
from gradientmail.progress import NodeProgress

WINDOW_SECONDS = 15.0
"""Rates are those of this stretch of time."""
LAST_WORDS = 30
"""Lines of plain text that are kept, for the end of a node that could not say why it failed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A node's totals at a moment of its clock."""

    time: float
    batches: int
    samples: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node, as its lines tell."""

    node: str
    learner: str
    progress: NodeProgress | None = None
    marks: tuple[Mark, ...] = ()
    """The latest progress, and those before it within the window."""
    first_held_out: float | None = None
    last_held_out: float | None = None
    ended: str = ""
    """How it ended, in a word; empty while it runs."""
    last_words: tuple[str, ...] = ()
    """Lines that were no log lines: output of the task's own code, tracebacks, errors of the interpreter."""

    @property
    def phase(self) -> str:
        """What it is doing, or how it ended."""
        return self.ended or (self.progress.phase if self.progress else "starting")

    @property
    def claimed(self) -> int:
        """Units it owns."""
        return self.progress.claimed if self.progress else 0

    @property
    def consumed(self) -> int:
        """Units it has trained."""
        return self.progress.consumed if self.progress else 0

    @property
    def batches(self) -> int:
        """Batches it has trained."""
        return self.progress.batches if self.progress else 0

    @property
    def batches_per_second(self) -> float | None:
        """Rate within the window; None before there are two moments."""
        return _rate(self.marks, lambda mark: float(mark.batches))

    @property
    def tokens_per_second(self) -> float | None:
        """Rate within the window; None before there are two moments."""
        return _rate(self.marks, lambda mark: float(mark.samples))

    @property
    def waiting(self) -> float | None:
        """Share of the window in which the loop waited for data, 0 to 1."""
        rate = _rate(self.marks, lambda mark: mark.wait_seconds)
        return None if rate is None else min(1.0, rate)

    def after(self, text: str) -> NodeView:
        """Return the view once the node has written this line."""
        record = record_of(text)
        match record:
            case {"event": "progress", "progress": dict(fields)}:
                return self._with_progress(fields)
            case {"event": "held-out", "loss": int() | float() | str() as told}:
                return self._with_held_out(told)
            case {"traceback": str(trace)}:
                return self._with_words(trace.splitlines())
            case None if text.strip():
                return self._with_words([text])
        return self

    def _with_held_out(self, told: float | str) -> NodeView:
        try:
            loss = number(told)
        except (ValueError, TypeError):
            return self
        first = loss if self.first_held_out is None else self.first_held_out
        return replace(self, first_held_out=first, last_held_out=loss)

    def _with_progress(self, fields: Mapping[str, Any]) -> NodeView:
        try:
            progress = NodeProgress.from_json(json.dumps(fields))
        except (ValueError, TypeError):
            return self
        mark = Mark(progress.time, progress.batches, progress.samples, progress.wait_seconds)
        recent = tuple(old for old in self.marks if mark.time - WINDOW_SECONDS <= old.time < mark.time)
        return replace(self, progress=progress, marks=(*recent, mark))

    def _with_words(self, lines: Sequence[str]) -> NodeView:
        return replace(self, last_words=(*self.last_words, *lines)[-LAST_WORDS:])


@dataclass(frozen=True, slots=True)
class RunView:
    """The run, as far as the nodes here tell."""

    units: int
    batches: int
    nodes: Mapping[str, NodeView]

    def after(self, node: str, text: str) -> RunView:
        """Return the view once a node has written this line."""
        return replace(self, nodes={**self.nodes, node: self.nodes[node].after(text)})

    def ended(self, node: str, how: str) -> RunView:
        """Return the view once a node has ended."""
        return replace(self, nodes={**self.nodes, node: replace(self.nodes[node], ended=how)})

    @property
    def consumed(self) -> int:
        """Units trained by the nodes here."""
        return sum(view.consumed for view in self.nodes.values())

    @property
    def seconds_left(self) -> float | None:
        """Batches left over the nodes' rates; None while nobody trains."""
        rates = [view.batches_per_second or 0.0 for view in self.nodes.values() if view.phase == "training"]
        left = self.batches - sum(view.batches for view in self.nodes.values())
        return left / sum(rates) if sum(rates) > 0 else None


def _rate(marks: Sequence[Mark], value: Any) -> float | None:
    if len(marks) < 2 or marks[-1].time <= marks[0].time:
        return None
    return float((value(marks[-1]) - value(marks[0])) / (marks[-1].time - marks[0].time))


def record_of(text: str) -> dict[str, Any] | None:
    """Return the record that a log line holds; None for any other line."""
    if not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "event" in record else None
