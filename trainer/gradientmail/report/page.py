"""A run as a web page: where it stands, who did what when, what was lost. Pure.

The same sections make the report's file and the live view of a local run. They hold no script and
load nothing; every name in them is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Self

from gradientmail.report.charts import (
    MOST_LANES,
    Axis,
    Point,
    Series,
    lines,
    number_axis,
    seconds_axis,
    shades_only,
    timeline,
)
from gradientmail.report.exchanged import exchange_lines
from gradientmail.report.figures import NodeFigures, RunFigures, figures
from gradientmail.report.markup import Markup, element, joined
from gradientmail.report.status import NodeStatus, RunStatus, Standing, run_status
from gradientmail.report.table import EXCHANGE_COLUMNS, lost_lines, notes
from gradientmail.report.timeline import consumed_over_time, shown_nodes
from gradientmail.report.words import count, duration, number, percent, rate, size
from gradientmail.runstate import SILENT_AFTER_SECONDS, RunState

MOST_ROWS = 200
STANDINGS: Mapping[Standing, str] = {
    "waiting": "no node has registered yet",
    "running": "nodes are training",
    "complete": "every unit has been trained",
    "ended": "no node is left, and units are missing",
    "unknown": "its nodes write no heartbeats, so nothing tells whether they live",
}


@dataclass(frozen=True)
class View:
    """What a page shows of a run."""

    figures: RunFigures
    status: RunStatus
    loss: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """(dataset step, training loss) of each node, where they are known: the mailbox keeps the latest alone."""
    waiting_lately: Mapping[str, float] = field(default_factory=dict)
    """Share of the last seconds in which each node's loop waited for data, 0 to 1, where it is known."""
    seconds_left: float | None = None
    """Better than the status's own, where it is known."""
    remarks: Sequence[str] = ()

    @classmethod
    def of(cls, state: RunState, *, silent_after: float = SILENT_AFTER_SECONDS) -> Self:
        """Return what a mailbox alone tells."""
        return cls(figures(state, silent_after=silent_after), run_status(state, silent_after=silent_after))


def sections(view: View) -> list[Markup]:
    """Return the page's sections; each has an id, and the empty ones are left out."""
    found = [
        ("standing", "", _standing(view)),
        ("nodes", "Nodes", _nodes(view)),
        ("timeline", "Timeline", _timeline(view.figures)),
        ("units", "Units consumed", _units(view.figures)),
        ("loss", "Training loss by dataset step", _loss(view.loss)),
        ("exchange", "Exchange", _exchange(view.figures)),
        ("lost", "Lost units", _lost(view.figures)),
        ("notes", "Notes", _notes(view)),
    ]
    return [_section(name, title, content) for name, title, content in found if content]


def report_page(view: View) -> str:
    """Return the report as one file: it loads nothing, runs nothing, and opens offline."""
    style = stylesheet()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = [
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("style", Markup(style)),
    ]
    read = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(view.status.read_at))
    return page(view, head, element("footer", element("p", f"Read from the run's mailbox at {read}.")))


def page(view: View, head: Sequence[Markup], footer: Markup) -> str:
    """Return a whole page with these elements in its head and this footer."""
    title = view.figures.run
    charset = element("meta", charset="utf-8")  # has to be among the first 1024 bytes
    common = [
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{title}: {view.status.standing}"),
    ]
    header = element("header", element("h1", title), element("p", _place(view.status), class_="place"))
    body = element("body", header, element("main", *sections(view)), footer)
    return "<!doctype html>\n" + element("html", element("head", charset, *head, *common), body, lang="en") + "\n"


def stylesheet() -> str:
    """Return the style of every page."""
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _section(name: str, title: str, content: Sequence[Markup]) -> Markup:
    heading = [element("h2", title, id=f"{name}-title")] if title else []
    label = {"aria_labelledby": f"{name}-title"} if title else {"aria_label": "Where the run stands"}
    return element("section", *heading, *content, id=name, **label)


def _place(status: RunStatus) -> str:
    return f"GradientRun in namespace {status.namespace}" if status.namespace else "run without a manifest"


# Where it stands.


def _standing(view: View) -> list[Markup]:
    status = view.status
    badge = element("strong", status.standing, class_=f"badge {status.standing}")
    said = element("p", badge, f" {STANDINGS[status.standing]}", role="status")
    done = percent(status.consumed / status.total if status.total else None, 1)
    bar = element("progress", done, max=status.total or 1, value=status.consumed, aria_label="units consumed")
    facts = [
        element("div", element("dt", name), element("dd", value, class_="bad" if bad else None))
        for name, value, bad in _facts(view, done)
    ]
    return [said, bar, element("dl", *facts)]


def _facts(view: View, done: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each fact: its name, its value, and whether it calls for a look."""
    status, result = view.status, view.figures
    total = count(status.total) if status.total is not None else "an unknown number"
    yield "units consumed", f"{count(status.consumed)} of {total}", False
    yield "progress", done, False
    yield "in progress", count(status.in_progress), False
    yield "unclaimed", count(status.unclaimed), False
    yield "lost", count(status.lost), status.lost > 0
    left = view.seconds_left if view.seconds_left is not None else status.estimated_seconds_left
    if status.standing == "running" and left is not None:
        yield "time left", f"about {duration(left)}", False
    yield "time so far" if status.standing == "running" else "makespan", duration(result.makespan_seconds), False
    if result.over_ideal:
        yield "ideal", duration(result.ideal_seconds), False
        yield "over the ideal", f"x {result.over_ideal:.3f}", False
        yield "fixed split", duration(result.fixed_split_seconds), False


# The nodes.

Row = tuple[NodeStatus, NodeFigures]


def _nodes(view: View) -> list[Markup]:
    rows: list[Row] = list(zip(view.status.nodes, view.figures.nodes, strict=True))
    if not rows:
        return []
    columns = _columns(view)
    head = element("tr", *(element("th", title, scope="col") for title in columns))
    body = [
        element("tr", *(_cell(place, cell(row)) for place, cell in enumerate(columns.values())))
        for row in rows[:MOST_ROWS]
    ]
    table = element("table", element("thead", head), element("tbody", *body), aria_labelledby="nodes-title")
    more = len(rows) - MOST_ROWS
    rest = [element("p", f"and {count(more, 'more node')}")] if more > 0 else []
    # A table that scrolls sideways has to be reached by the keyboard.
    return [element("div", table, class_="scroll", tabindex="0", role="region", aria_labelledby="nodes-title"), *rest]


def _cell(place: int, content: str) -> Markup:
    return element("th", content, scope="row") if place == 0 else element("td", content)


def _columns(view: View) -> dict[str, Callable[[Row], str]]:
    lately = view.waiting_lately
    columns: dict[str, Callable[[Row], str]] = {
        "node": lambda row: row[0].node,
        "state": lambda row: _state(row[0]),
        "claimed": lambda row: count(row[0].claimed),
        "consumed": lambda row: count(row[0].consumed),
        "lost": lambda row: count(row[0].lost),
        "share": lambda row: percent(row[1].share, 1),
        "batches/s": lambda row: rate(row[1].batches_per_second),
        "waiting for data": lambda row: _meter(row[1].wait_share),
        "waiting lately": lambda row: _meter(lately.get(row[0].node)),
        "step": lambda row: count(row[0].step),
        "loss": lambda row: number(row[0].loss),
        "held-out loss": lambda row: number(row[0].held_out_loss),
        "restarts": lambda row: count(row[0].restarts),
    }
    if view.status.exchange:
        columns |= {title: partial(_of_status, cell) for title, cell in TRAFFIC_COLUMNS.items()}
    left_out = {
        "waiting lately": not lately,
        "lost": not view.status.lost,
        "restarts": not any(node.restarts for node in view.status.nodes),
        "held-out loss": all(node.held_out_loss is None for node in view.status.nodes),
    }
    return {title: cell for title, cell in columns.items() if not left_out.get(title)}


TRAFFIC_COLUMNS: Mapping[str, Callable[[NodeStatus], str]] = {
    **EXCHANGE_COLUMNS,
    "sent": lambda node: size(node.exchange.sent_bytes) if node.exchange else "-",
    "received": lambda node: size(node.exchange.received_bytes) if node.exchange else "-",
}


def _of_status(cell: Callable[[NodeStatus], str], row: Row) -> str:
    return cell(row[0])


def _state(node: NodeStatus) -> Markup:
    state = node.phase if node.phase and node.presence in ("live", "left") else node.presence
    return element("span", state, class_="bad" if state in ("failed", "silent") else None, title=node.message or None)


def _meter(share: float | None) -> Markup:
    if share is None:
        return Markup("-")
    bar = element(
        "svg", element("rect", width=f"{100 * share:.1f}%", height="100%"), class_="meter", aria_hidden="true"
    )
    return joined([bar, percent(share, 1)])


# Charts.


def _timeline(figures: RunFigures) -> list[Markup]:
    if not shown_nodes(figures):
        return []
    told = "Shade: share of time busy." if shades_only(figures) else "A box is a unit, its colour the lane of the data."
    lost = " Open boxes: claimed and not finished; orange if lost." if figures.remainders else ""
    ideal = " Dashed line: the ideal end." if figures.ideal_seconds else ""
    more = len(shown_nodes(figures)) - MOST_LANES
    rest = f" Not shown: {count(more, 'more node')}." if more > 0 else ""
    return [timeline(figures), element("p", told + lost + ideal + rest, class_="key-line")]


def _units(figures: RunFigures) -> list[Markup]:
    series = [Series(node, points) for node, points in consumed_over_time(figures.boxes).items()]
    if not series:
        return []
    most = max(each.points[-1][1] for each in series)
    y = number_axis([0.0, most], from_zero=True, most=4)
    label = "units consumed by each node over the time since the first batch"
    return [
        lines(
            series, label=label, x=seconds_axis(series), y=y, stepped=True, legend=lambda each: _last(each, "{:,.0f}")
        )
    ]


def _loss(loss: Mapping[str, Sequence[Point]]) -> list[Markup]:
    series = [Series(node, _means(points)) for node, points in sorted(loss.items())]
    series = [each for each in series if each.points]
    if not series:
        return []
    values = [value for each in series for _, value in each.points]
    steps = [step for each in series for step, _ in each.points]
    x, y = _steps_axis(steps), number_axis(values, from_zero=False, most=4)
    return [lines(series, label="training loss by dataset step", x=x, y=y, legend=lambda each: _last(each, "{:.3f}"))]


def _means(points: Sequence[Point]) -> list[Point]:
    """Return the mean at each x: a node trains several slices of one step."""
    values: dict[float, list[float]] = {}
    for x, value in points:
        if math.isfinite(value):
            values.setdefault(x, []).append(value)
    return [(x, sum(found) / len(found)) for x, found in sorted(values.items())]


def _steps_axis(steps: Sequence[float]) -> Axis:
    axis = number_axis(steps, from_zero=True)
    return Axis(axis.low, max(1.0, *steps), [tick for tick in axis.ticks if tick <= max(1.0, *steps)], axis.written)


def _last(series: Series, form: str) -> str:
    return f"{series.name}: {form.format(series.points[-1][1])}"


# What was exchanged, what was lost, and what else there is to say.


def _exchange(figures: RunFigures) -> list[Markup]:
    return [element("p", line) for line in exchange_lines(figures.exchange, figures.final_model)]


def _lost(figures: RunFigures) -> list[Markup]:
    return [element("ul", *(element("li", line) for line in lost_lines(figures)))] if figures.lost else []


def _notes(view: View) -> list[Markup]:
    told = [*view.remarks, *notes(view.figures)]
    told += [f"{node.node}: {node.message}" for node in view.status.nodes if node.message]
    return [element("ul", *(element("li", line) for line in told))] if told else []
