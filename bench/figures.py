"""One line per figure: what was measured, what was to be reached, whether it was."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value beside its goal."""

    what: str
    measured: str
    goal: str
    holds: bool


def show(figures: list[Figure]) -> None:
    """Print the figures; leave with 1 if any goal was missed."""
    for figure in figures:
        print(
            f"{'ok    ' if figure.holds else 'MISSED'}  {figure.what}: {figure.measured}  (goal: {figure.goal})",
            flush=True,
        )
    if not all(figure.holds for figure in figures):
        sys.exit(1)
