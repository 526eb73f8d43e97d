"""What is shown while a run is going: a live screen at a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gradientmail.local.watching import NodeView, RunView
from gradientmail.report.exchanged import Exchanged, exchange_of
from gradientmail.report.table import columns_text
from gradientmail.report.words import count, duration, number, percent, rate, size

PLAIN_SECONDS = 5.0
REFRESHES_PER_SECOND = 4
LINES_ROUND_THE_TABLE = 7
WIDE = 120
"""Columns of a terminal that has room for each node's exchange."""


class Screen(Protocol):
    """A context manager that shows views of a run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, view: RunView) -> None:
        """Show where the run stands; may leave out views that follow each other quickly."""

    def say(self, text: str) -> None:
        """Show a sentence that stays."""


class LiveScreen:
    """A table that is redrawn in place."""

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._started = time.monotonic()
        self._drawn = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, view: RunView) -> None:
        """See Screen."""
        now = time.monotonic()
        if now - self._drawn >= 1 / REFRESHES_PER_SECOND:
            self._drawn = now
            rows = max(1, self._console.height - LINES_ROUND_THE_TABLE)
            wide = self._console.width >= WIDE
            self._live.update(live_view(self._name, view, now - self._started, rows, wide=wide), refresh=True)

    def say(self, text: str) -> None:
        """See Screen."""
        self._console.print(Text(text))


class PlainScreen:
    """A line every few seconds."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, every_seconds: float = PLAIN_SECONDS
    ) -> None:
        self._console, self._clock, self._every = console, clock, every_seconds
        self._next = clock() + every_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, view: RunView) -> None:
        """See Screen."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._every
            self.say(plain_line(view))

    def say(self, text: str) -> None:
        """See Screen."""
        self._console.print(Text(text))


def live_view(name: str, view: RunView, elapsed: float, rows: int, *, wide: bool = False) -> RenderableType:
    """Return the table of a run, of at most `rows` nodes; `wide` with what each has exchanged."""
    head = Table.grid(padding=(0, 2, 0, 0))
    head.add_row(
        Text(name, style="bold"),
        ProgressBar(total=max(1, view.units), completed=view.consumed, width=32),
        f"{count(view.consumed)}/{count(view.units, 'unit')}",
        percent(view.consumed / view.units if view.units else None),
        duration(elapsed),
        Text(f"{duration(view.seconds_left)} left" if view.seconds_left is not None else "", style="dim"),
    )
    nodes = list(view.nodes.values())
    more = [Text(f"and {len(nodes) - rows} more nodes", style="dim")] if len(nodes) > rows else []
    exchanged = Exchanged.of(nodes)
    foot = [Text(f"exchange: {exchanged.line}", style="dim")] if exchanged else []
    return Group(head, Text(), _table(nodes[:rows], view.consumed, wide and exchanged is not None), *more, *foot)


def _table(nodes: Sequence[NodeView], consumed: int, with_exchange: bool) -> RenderableType:
    progress = [view.progress for view in nodes]
    columns: dict[str, list[str]] = {
        "node": [view.node for view in nodes],
        "phase": [view.phase for view in nodes],
        "claimed": [count(view.claimed) for view in nodes],
        "consumed": [count(view.consumed) for view in nodes],
        "share": [percent(view.consumed / consumed if consumed else None) for view in nodes],
        "step": [count(word.step if word else None) for word in progress],
        "loss": [number(word.loss if word else None) for word in progress],
        "buffer": [count(word.buffered if word else None) for word in progress],
        "waiting": [percent(view.waiting, 1) for view in nodes],
        "tokens/s": [rate(view.tokens_per_second) for view in nodes],
    }
    return columns_text(columns | _exchange_columns(nodes) if with_exchange else columns)


def _exchange_columns(nodes: Sequence[NodeView]) -> dict[str, list[str]]:
    exchange = [exchange_of(view) for view in nodes]
    return {
        "version": [count(min(each.versions) if each and each.versions else None) for each in exchange],
        "stale": [count(each.staleness_steps if each else None) for each in exchange],
        "sent": [size(each.sent_bytes) if each else "-" for each in exchange],
        "received": [size(each.received_bytes) if each else "-" for each in exchange],
    }


def plain_line(view: RunView) -> str:
    """Return where a run stands, on one line."""
    done = percent(view.consumed / view.units if view.units else None)
    parts = [f"{count(view.consumed)} of {count(view.units, 'unit')} ({done})"]
    if view.seconds_left is not None:
        parts.append(f"{duration(view.seconds_left)} left")
    parts.append("  ".join(_brief(node) for node in view.nodes.values()))
    if exchanged := Exchanged.of(view.nodes.values()):
        parts.append(exchanged.line)
    return " | ".join(parts)


def _brief(view: NodeView) -> str:
    if view.progress is None or view.phase == "starting":
        return f"{view.node} {view.phase}"
    how = f" {view.phase}" if view.phase != "training" else ""
    loss = f" loss {view.progress.loss:.3f}" if view.progress.loss is not None else ""
    return f"{view.node} {view.consumed}/{view.claimed}{loss}{how}"
