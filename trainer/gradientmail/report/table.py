"""Status and report as text for a terminal. Pure but for rich's own rendering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.report.figures import NodeFigures, RunFigures
from gradientmail.report.status import NodeStatus, RunStatus
from gradientmail.report.words import count, duration, number, percent, rate

MOST_LOST_NAMED = 8


def report_text(figures: RunFigures) -> RenderableType:
    """Return a run's figures, a row per node."""
    table = _table(
        "node", "units", "share", "batches", "batches/s", "busy", "waiting", "held-out loss", "units lost", "restarts"
    )
    for node in figures.nodes:
        table.add_row(*_report_row(node))
    return Group(table, *map(Text, report_lines(figures)))


def _report_row(node: NodeFigures) -> Sequence[str]:
    return (
        node.node,
        count(node.units),
        percent(node.share, 1),
        count(node.batches),
        rate(node.batches_per_second),
        duration(node.busy_seconds),
        percent(node.wait_share, 1),
        number(node.held_out_loss),
        count(node.lost_units),
        count(node.restarts),
    )


def report_lines(figures: RunFigures) -> Iterator[str]:
    """Yield what a run came to, a sentence a line."""
    total = count(figures.total_units) if figures.total_units is not None else "an unknown number"
    yield f"{count(figures.consumed_units)} of {total} units trained, {count(figures.lost_units)} lost"
    if figures.ideal_seconds and figures.over_ideal:
        yield (
            f"makespan {duration(figures.makespan_seconds)} = {figures.over_ideal:.3f} x the ideal "
            f"{duration(figures.ideal_seconds)}; a fixed split at these rates: {duration(figures.fixed_split_seconds)}"
        )
    yield from lost_lines(figures)
    if figures.unclaimed_units:
        yield f"{count(figures.unclaimed_units, 'unit')} that nobody has claimed"
    for node in figures.nodes:
        if offset := node.clock_offset_seconds:
            yield f"clock of {node.node}: its claims show it {offset:+.0f} s off; its times are corrected by that"
    if figures.foreign_objects:
        yield f"{count(figures.foreign_objects, 'object')} in the run's folders are none of the run's and were skipped"


def lost_lines(figures: RunFigures) -> Iterator[str]:
    """Yield which units were lost, a line per node that had claimed them."""
    by_node: dict[str, list[str]] = {}
    for identifier, node in figures.lost.items():
        by_node.setdefault(node, []).append(identifier)
    for node, units in by_node.items():
        more = f" and {count(len(units) - MOST_LOST_NAMED)} more" if len(units) > MOST_LOST_NAMED else ""
        yield f"lost with {node}: {', '.join(units[:MOST_LOST_NAMED])}{more}"


def status_text(status: RunStatus) -> RenderableType:
    """Return where a run stands, a row per node."""
    units = ("claimed", "consumed", "in progress", "lost")
    table = _table("node", "presence", "phase", *units, "step", "loss", "held-out", "last seen")
    for node in status.nodes:
        table.add_row(*_status_row(node))
    return Group(*map(Text, _status_head(status)), table, *map(Text, _status_notes(status)))


def _status_row(node: NodeStatus) -> Sequence[str]:
    seen = "-" if node.last_seen_seconds is None else f"{duration(node.last_seen_seconds)} ago"
    return (
        node.node,
        node.presence,
        node.phase or "-",
        count(node.claimed),
        count(node.consumed),
        count(node.in_progress),
        count(node.lost),
        count(node.step),
        number(node.loss),
        number(node.held_out_loss),
        seen,
    )


def _status_head(status: RunStatus) -> Iterator[str]:
    total = count(status.total) if status.total is not None else "an unknown number"
    share = "" if status.percent_consumed is None else f" ({status.percent_consumed:.1f} %)"
    yield f"{status.run or 'run without a manifest'}: {status.standing}"
    yield (
        f"{count(status.consumed)} of {total} units consumed{share}, {count(status.in_progress)} in progress, "
        f"{count(status.lost)} lost, {count(status.unclaimed)} unclaimed"
    )
    if status.estimated_seconds_left is not None and status.standing == "running":
        yield f"about {duration(status.estimated_seconds_left)} left"


def _status_notes(status: RunStatus) -> Iterator[str]:
    for node in status.nodes:
        if node.message:
            yield f"{node.node}: {node.message}"
        if node.clock_ahead_seconds:
            yield f"clock of {node.node}: at least {node.clock_ahead_seconds:.0f} s ahead of this machine's"
    if status.node_counts_from == "heartbeats":
        yield "the nodes' counts are those of their latest heartbeats; --exact reads every receipt instead"
    if status.lost:
        yield f"lost: claimed by nodes that have left, or were silent for {duration(status.silent_after_seconds)}"
    if status.foreign_objects:
        examples = ", ".join(status.foreign_examples)
        yield f"skipped {count(status.foreign_objects, 'object')} that are none of the run's, such as {examples}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="left" if name in ("presence", "phase") else "right")
    return table
