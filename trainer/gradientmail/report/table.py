"""Status and report as text for a terminal. Pure but for rich's own rendering."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.report.exchanged import exchange_lines
from gradientmail.report.figures import NodeFigures, RunFigures
from gradientmail.report.status import NodeStatus, RunStatus
from gradientmail.report.words import count, duration, number, percent, rate

MOST_LOST_NAMED = 8


def report_text(figures: RunFigures) -> RenderableType:
    """Return a run's figures, a row per node."""
    columns = {title: [cell(node) for node in figures.nodes] for title, cell in REPORT_COLUMNS.items()}
    return Group(columns_text(columns, optional=("units\nlost", "restarts")), *map(Text, report_lines(figures)))


REPORT_COLUMNS: dict[str, Callable[[NodeFigures], str]] = {
    "node": lambda node: node.node,
    "units": lambda node: count(node.units),
    "share": lambda node: percent(node.share, 1),
    "batches": lambda node: count(node.batches),
    "batches/s": lambda node: rate(node.batches_per_second),
    "busy": lambda node: duration(node.busy_seconds),
    "waiting": lambda node: percent(node.wait_share, 1),
    "held-out\nloss": lambda node: number(node.held_out_loss),
    "units\nlost": lambda node: count(node.lost_units),
    "restarts": lambda node: count(node.restarts),
}


def report_lines(figures: RunFigures) -> Iterator[str]:
    """Yield what a run came to, a sentence a line."""
    total = count(figures.total_units) if figures.total_units is not None else "an unknown number of"
    yield f"{count(figures.consumed_units)} of {total} units trained, {count(figures.lost_units)} lost"
    if figures.ideal_seconds and figures.over_ideal:
        yield (
            f"makespan {duration(figures.makespan_seconds)} = {figures.over_ideal:.3f} x the ideal "
            f"{duration(figures.ideal_seconds)}; a fixed split at these rates: {duration(figures.fixed_split_seconds)}"
        )
    yield from lost_lines(figures)
    if figures.unclaimed_units:
        yield f"nobody claimed {count(figures.unclaimed_units, 'unit')}"
    yield from exchange_lines(figures.exchange, figures.final_model)
    yield from notes(figures)


def notes(figures: RunFigures) -> Iterator[str]:
    """Yield what was found odd in a run's mailbox, a sentence a line."""
    for node in figures.nodes:
        if offset := node.clock_offset_seconds:
            yield f"clock of {node.node}: its claims show it {offset:+.0f} s off; its times are corrected by that"
    if figures.foreign_objects:
        yield f"skipped {count(figures.foreign_objects, 'foreign object')} in the run's mailbox"


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
    columns = {title: [cell(node) for node in status.nodes] for title, cell in STATUS_COLUMNS.items()}
    if status.exchange:
        columns |= {title: [cell(node) for node in status.nodes] for title, cell in EXCHANGE_COLUMNS.items()}
    table = columns_text(columns, optional=("restarts",))
    return Group(*map(Text, _status_head(status)), Text(), table, *map(Text, _status_notes(status)))


STATUS_COLUMNS: dict[str, Callable[[NodeStatus], str]] = {
    "node": lambda node: node.node,
    "state": lambda node: node.phase or node.presence if node.presence in ("live", "left") else node.presence,
    "claimed": lambda node: count(node.claimed),
    "consumed": lambda node: count(node.consumed),
    "in\nprogress": lambda node: count(node.in_progress),
    "lost": lambda node: count(node.lost),
    "step": lambda node: count(node.step),
    "loss": lambda node: number(node.loss),
    "seconds since\nlast seen": lambda node: number(node.last_seen_seconds, 0),
    "restarts": lambda node: count(node.restarts),
}


EXCHANGE_COLUMNS: dict[str, Callable[[NodeStatus], str]] = {
    "version": lambda node: count(min(node.exchange.versions, default=None) if node.exchange else None),
    "stale": lambda node: count(node.exchange.staleness_steps if node.exchange else None),
}


def _status_head(status: RunStatus) -> Iterator[str]:
    total = count(status.total) if status.total is not None else "an unknown number of"
    share = "" if status.percent_consumed is None else f" ({status.percent_consumed:.1f} %)"
    yield f"{status.run or 'run without a manifest'}: {status.standing}"
    yield (
        f"{count(status.consumed)} of {total} units consumed{share}, {count(status.in_progress)} in progress, "
        f"{count(status.lost)} lost, {count(status.unclaimed)} unclaimed"
    )
    if status.estimated_seconds_left is not None and status.standing == "running":
        yield f"about {duration(status.estimated_seconds_left)} left"
    if status.exchange:
        yield f"exchange: {status.exchange.line}"


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
        yield f"skipped {count(status.foreign_objects, 'foreign object')}, such as {examples}"


def columns_text(columns: Mapping[str, Sequence[str]], *, optional: Collection[str] = ()) -> Table:
    """Return a table of texts by title; columns in `optional` are left out where they hold nothing but 0."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown = {title: cells for title, cells in columns.items() if title not in optional or set(cells) - {"0"}}
    for title in shown:
        left = title in ("node", "state", "phase", "ended")
        table.add_column(title, justify="left" if left else "right", vertical="bottom", no_wrap=True)
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def console(*, stderr: bool = False) -> Console:
    """Return the console for tables: wide enough for them where nobody's terminal sets the width."""
    own = Console(highlight=False, soft_wrap=True, stderr=stderr)
    return own if own.is_terminal else Console(highlight=False, soft_wrap=True, stderr=stderr, width=200)
