"""What a dashboard is made of. Plain values: no Grafana here, so the panels read as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Shape = Literal["lines", "stacked", "number", "words", "bars", "table", "curve"]
"""lines and stacked: over time. number and words: one value, or its name. bars: by node. curve: by step."""
Color = Literal["green", "orange", "red"]
WARN: Color = "orange"
ALARM: Color = "red"


@dataclass(frozen=True)
class Query:
    """One expression of PromQL and what its series, or in a table its column, are called."""

    expression: str
    name: str = ""
    unit: str = ""
    """Of its column in a table or on a second axis; empty means the panel's."""
    on_the_right: bool = False
    """Draw it against the right axis."""


@dataclass(frozen=True)
class Threshold:
    """From this value on, the color."""

    value: float
    color: Color


@dataclass(frozen=True)
class Panel:
    """One picture that answers one question."""

    title: str
    shape: Shape
    unit: str
    """Grafana's name of the unit."""
    queries: tuple[Query, ...]
    description: str
    """What is shown, and what to make of it."""
    empty: str
    """Why there may be nothing to show; stands in the panel then."""
    axis: str = ""
    """Label of the axis, where the unit does not say it all."""
    thresholds: tuple[Threshold, ...] = ()
    width: int = 8
    height: int = 8
    minimum: float | None = 0
    maximum: float | None = None
    decimals: int | None = None
    rate_window: str = ""
    """Rates are taken over at least this long, such as 5m; empty leaves it to Grafana."""
    key: str = "node"
    """The label by which rows of a table or bars are joined."""
    links_to_run: bool = False
    """Rows of the table lead to the dashboard of their run."""


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the dashboard, from the values of a label."""

    name: str
    label: str
    metrics: str
    """Selector of the series whose label `name` is listed."""
    many: bool = False
    """Whether several, or all, may be chosen."""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. Its uid is part of links and never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    def panels(self) -> Iterator[Panel]:
        """Yield all panels, from the top."""
        for row in self.rows:
            yield from row.panels
