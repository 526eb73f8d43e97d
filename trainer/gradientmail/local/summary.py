"""What a local run came to: as text for a person and as a record for a program. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gradientmail.exits import Exit
from gradientmail.layout import FINAL
from gradientmail.local.outcome import End, failures
from gradientmail.local.watching import NodeView
from gradientmail.report.exchanged import Exchanged, FinalModel
from gradientmail.report.figures import NodeFigures, RunFigures
from gradientmail.report.table import columns_text, lost_lines
from gradientmail.report.words import count, duration, number, percent, rate


@dataclass(frozen=True)
class Summary:
    """A run that has ended on this machine."""

    figures: RunFigures
    ends: Sequence[End]
    views: Mapping[str, NodeView]
    exit: Exit
    folder: Path
    mailbox: str
    files: Sequence[Path]
    notes: Sequence[str] = ()

    @property
    def exchanged(self) -> Exchanged | None:
        """What the nodes here have exchanged; None with `Solo`, or if none came that far."""
        return Exchanged.of(self.views.values())

    @property
    def final_model(self) -> FinalModel | None:
        """The run's final model, if a node here has written it."""
        return FinalModel.of(self.views.values())

    @property
    def final_model_place(self) -> str:
        """Where the final model lies."""
        return f"{self.mailbox.removesuffix('/')}/{FINAL}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {
            "exit": self.exit.name,
            "exit_code": int(self.exit),
            "folder": str(self.folder),
            "mailbox": self.mailbox,
            "files": [str(path) for path in self.files],
            "notes": list(self.notes),
            "ends": [self._end(end) for end in self.ends],
            "exchange": asdict(self.exchanged) if self.exchanged else None,
            "final_model": asdict(self.final_model) | {"url": self.final_model_place} if self.final_model else None,
            "report": self.figures.to_dict(),
        }

    def _end(self, end: End) -> dict[str, Any]:
        view = self.views[end.node]
        return {
            "node": end.node,
            "learner": end.learner,
            "ended": end.word,
            "exit_code": end.code,
            "message": end.message,
            "first_held_out_loss": view.first_held_out,
            "last_held_out_loss": view.last_held_out,
        }


def summary_text(summary: Summary) -> RenderableType:
    """Return the summary for a terminal."""
    head, foot = map(Text, _head(summary.figures)), map(Text, _foot(summary))
    return Group(Text(), *head, Text(), _table(summary), Text(), *foot)


def _head(figures: RunFigures) -> Iterator[str]:
    done = f"{figures.run}: {count(figures.consumed_units)} of {count(figures.total_units, 'unit')} trained"
    if not figures.ideal_seconds or not figures.over_ideal:
        yield done
        return
    yield f"{done} in {duration(figures.makespan_seconds)}"
    yield (
        f"{figures.over_ideal:.3f} x the ideal {duration(figures.ideal_seconds)} for nodes of these rates; "
        f"a fixed split would have taken {duration(figures.fixed_split_seconds)}"
    )


def _table(summary: Summary) -> RenderableType:
    ends = {end.node: end for end in summary.ends}
    nodes = summary.figures.nodes
    columns = {
        "node": [node.node for node in nodes],
        "units": [count(node.units) for node in nodes],
        "share": [percent(node.share, 1) for node in nodes],
        "batches/s": [rate(node.batches_per_second) for node in nodes],
        "waiting": [percent(node.wait_share, 1) for node in nodes],
        "held-out loss": [_held_out(summary.views.get(node.node), node) for node in nodes],
        "units\nlost": [count(node.lost_units) for node in nodes],
        "ended": [ends[node.node].word if node.node in ends else "elsewhere" for node in nodes],
    }
    return columns_text(columns, optional=["units\nlost"])


def _held_out(view: NodeView | None, node: NodeFigures) -> str:
    if view is None or view.first_held_out is None:
        return number(node.held_out_loss)
    first, last = number(view.first_held_out), number(view.last_held_out)
    return first if first == last else f"{first} -> {last}"


def _foot(summary: Summary) -> Iterator[str]:
    for nodes, message in failures(summary.ends):
        yield f"{', '.join(nodes)}: {message}"
    yield from lost_lines(summary.figures)
    if summary.figures.unclaimed_units:
        yield f"nobody claimed {count(summary.figures.unclaimed_units, 'unit')}"
    yield from summary.notes
    yield from _model(summary)
    yield f"folder      {summary.folder}"
    yield f"mailbox     {summary.mailbox}"
    yield f"node logs   {summary.folder / 'nodes'}"
    for path in summary.files:
        yield f"{_kind(path):<11} {path}"


def _model(summary: Summary) -> Iterator[str]:
    if summary.exchanged is None:
        return
    yield f"exchange    {summary.exchanged.line}"
    if model := summary.final_model:
        yield f"model       {summary.final_model_place}: {model.words}"
    else:
        yield (
            "model       no node here has written a final one; the newest versions are put together by "
            f"`gradientmail export {summary.folder} FILE.safetensors`"
        )


def _kind(path: Path) -> str:
    return {".json": "report", ".html": "page", ".png": "timeline", ".svg": "timeline"}[path.suffix]
