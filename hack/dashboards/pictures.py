"""Draw panels of the shipped dashboards over a Prometheus that has seen a run, for the documentation.

Not Grafana's own pictures: the panels' titles, units, thresholds and queries are those of the JSON files, and the
answers Prometheus' own; only the drawing is this module's. One picture answers one question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.dashboards import RUN, Query, panels, queries
from tests.prometheus import Labels, Prometheus

INK = "#7b8490"
"""Text and axes: readable on white and on dark."""
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#8C6BB1")
"""Told apart by colour-blind readers too (Okabe and Ito 2008)."""
THRESHOLD_COLORS = {"orange": "#E69F00", "red": "#D55E00"}
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "gradientmail",
    "text.parse_math": False,
}
SIZE = (11.0, 3.6)
WINDOW_SECONDS = 15
"""Grafana's $__rate_interval for a scrape every other second and a graph of some minutes."""
STEP_SECONDS = 2.0
MINUTE = 60.0
QUESTIONS: Mapping[str, tuple[str, str]] = {
    "who-takes-how-much": ("Units consumed by node", "Share of units against share of speed"),
    "waiting-for-data": ("Share of time waiting for data", "Batches ready"),
    "when-will-it-end": ("Progress over time", "Time left over time"),
    "what-was-lost": ("Unfinished units of nodes that are gone", "Restarts by node"),
    "is-the-bucket-slow": ("Mailbox latency", "Mailbox errors"),
}


@dataclass(frozen=True)
class Seen:
    """A run in Prometheus, and the time shown, in seconds since the epoch."""

    prometheus: Prometheus
    namespace: str
    run: str
    start: float
    end: float

    def expression(self, query: Query) -> str:
        """Return a query with its variables replaced, as Grafana does."""
        shown = f"{math.ceil(self.end - self.start)}s"
        return query.with_values(namespace=self.namespace, run=self.run, shown=shown, window=f"{WINDOW_SECONDS}s")


def draw_all(seen: Seen, folder: Path) -> list[Path]:
    """Write `dashboard-{question}.svg` for each question, and return their paths."""
    shown = {panel["title"]: panel for panel in panels(RUN)}
    paths = []
    with rc_context(STYLE):
        for question, titles in QUESTIONS.items():
            figure = Figure(figsize=SIZE, layout="constrained")
            for axes, title in zip(figure.subplots(1, len(titles)), titles, strict=True):
                DRAWN[shown[title]["type"]](axes, shown[title], seen)
            path = folder / f"dashboard-{question}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None})
            paths.append(path)
    return paths


def _lines(axes: Axes, panel: Mapping[str, Any], seen: Seen) -> None:
    series = [
        (_named(query.name, labels), values)
        for query in _of(panel)
        for labels, values in seen.prometheus.over_time(
            seen.expression(query), start=seen.start, end=seen.end, step=STEP_SECONDS
        ).items()
    ]
    for color, (name, values) in zip(_colors(), sorted(series), strict=False):
        finite = [(when - seen.start, value) for when, value in values if math.isfinite(value)]
        axes.plot(*zip(*_with_gaps(finite), strict=True), label=name, color=color, linewidth=1.3)
    _frame(axes, panel)
    axes.set_xlim(0, seen.end - seen.start)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds // 60:.0f}:{seconds % 60:02.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 3, 6]))


def _with_gaps(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points with a hole where some are missing, so that no line is drawn over it."""
    drawn = list(values[:1])
    for before, after in pairwise(values):
        if after[0] - before[0] > 3 * STEP_SECONDS:
            drawn.append((before[0], math.nan))
        drawn.append(after)
    return drawn


def _bars(axes: Axes, panel: Mapping[str, Any], seen: Seen) -> None:
    (organize,) = [each for each in panel["transformations"] if each["id"] == "organize"]
    names = organize["options"]["renameByName"]
    columns = {
        names[f"Value #{query.name}"]: seen.prometheus.by("node", seen.expression(query), seen.end)
        for query in _of(panel)
    }
    nodes = sorted({node for column in columns.values() for node in column})
    width = 0.8 / len(columns)
    for place, (color, (name, column)) in enumerate(zip(COLORS, columns.items(), strict=False)):
        heights = [column.get(node, 0.0) for node in nodes]
        axes.bar([x + place * width for x in range(len(nodes))], heights, width, label=name, color=color)
    axes.set_xticks([x + width * (len(columns) - 1) / 2 for x in range(len(nodes))], nodes)
    _frame(axes, panel)
    axes.set_ylim(0, None)


def _of(panel: Mapping[str, Any]) -> list[Query]:
    return [query for query in queries(RUN) if query.panel == panel["title"]]


def _named(legend: str, labels: Labels) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: dict(labels).get(found[1], ""), legend)


def _colors() -> list[str]:
    return [*COLORS, *COLORS]


def _frame(axes: Axes, panel: Mapping[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_title(panel["title"], loc="left", fontsize=10, fontweight="bold")
    axes.yaxis.set_major_formatter(FuncFormatter(UNITS[defaults["unit"]]))
    if defaults["unit"] == "s" and axes.get_ylim()[1] > MINUTE:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 1.2, 3, 6]))  # whole minutes
    axes.set_ylabel(defaults.get("custom", {}).get("axisLabel", ""))
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    top = axes.get_ylim()[1]
    for step in defaults["thresholds"]["steps"][1:]:
        if step["value"] <= top:
            axes.axhline(step["value"], color=THRESHOLD_COLORS[step["color"]], linestyle=(0, (4, 3)), linewidth=0.9)
    axes.grid(axis="y", color=INK, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    narrow = {"handlelength": 1.2, "columnspacing": 0.9}
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=4, frameon=False, fontsize=7.5, **narrow)


def _seconds(value: float, _: object) -> str:
    return f"{value / MINUTE:.3g} min" if value >= MINUTE else f"{value:g} s"


UNITS: Mapping[str, Callable[[float, Any], str]] = {
    "none": lambda value, _: f"{value:g}",
    "percentunit": lambda value, _: f"{100 * value:g} %",
    "s": _seconds,
    "reqps": lambda value, _: f"{value:g} req/s",
}
DRAWN: Mapping[str, Callable[[Axes, Mapping[str, Any], Seen], None]] = {"timeseries": _lines, "barchart": _bars}
