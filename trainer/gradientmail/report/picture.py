"""The timeline of a run as a picture: a lane per node, a box per unit.

Needs matplotlib (extra `report`); nothing else in the package does. The background is transparent
and every colour keeps its contrast on white and on dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradientmail.exits import UserError
from gradientmail.report.figures import Box, NodeFigures, RunFigures
from gradientmail.report.timeline import (
    clock,
    end_seconds,
    headline,
    ink_on,
    lane_label,
    palette,
    short,
    shown_nodes,
    tick_seconds,
    too_narrow,
)
from gradientmail.report.words import duration
from gradientmail.writing import written_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 11.0
TALLEST_INCHES = 60.0
DOTS_PER_INCH = 144
INK = "#7b8490"
"""Text and axes: at least 3.7 to 1 on white, 4.9 to 1 on a dark page."""
FAINT = "#7b849055"
RUN, IDEAL, FIXED = "#0072B2", "#009E73", "#D55E00"
LOST = "#D55E00"
SMALLEST_PIXELS = 2.0
"""If half the boxes are narrower, each lane shows how busy the node was instead."""
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 1.0,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "gradientmail",
}


class PictureNotPossible(UserError):
    """matplotlib is not installed, or there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """The time axis: `end` seconds over the width of the lanes."""

    end: float
    pixels: float

    def width(self, seconds: float) -> float:
        return seconds / self.end * self.pixels

    def seconds(self, pixels: float) -> float:
        return pixels / self.pixels * self.end


def check_can_draw() -> None:
    """Raise PictureNotPossible if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise PictureNotPossible(
            "the picture needs matplotlib, which is not installed: give --no-picture, "
            "or run `pip install './trainer[report]'` in GradientMail's repository"
        )


def draw(figures: RunFigures, files: Mapping[str, Path], advice: str) -> None:
    """Write the timeline into files by format, `png` or `svg`.

    Raises PictureNotPossible if matplotlib is missing or no unit has been trained, and UserError, which ends in
    `advice`, for a file that cannot be written.
    """
    check_can_draw()
    if not figures.boxes:
        raise PictureNotPossible("no unit has been trained to its end yet, so there is no timeline to draw")
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = _figure(figures)
        for form, path in files.items():
            metadata = {"Date": None} if form == "svg" else {}
            with written_to(path, advice):
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, format=form, dpi=DOTS_PER_INCH, transparent=True, metadata=metadata)


def _figure(figures: RunFigures) -> Figure:
    from matplotlib.figure import Figure

    nodes = shown_nodes(figures)
    lane_inches = min(0.5, max(0.24, 6.4 / len(nodes)), TALLEST_INCHES / len(nodes))
    heights = [lane_inches * len(nodes), 1.35]
    top, gap, bottom = 0.85, 0.3, 0.55
    tall = top + heights[0] + gap + heights[1] + bottom
    figure = Figure(figsize=(WIDTH_INCHES, tall))
    left, right = 0.02 + 0.0078 * max(6, *(len(node.node) for node in nodes)), 0.835
    end = end_seconds(figures)
    scale = _Scale(end, (right - left) * WIDTH_INCHES * DOTS_PER_INCH)
    lanes = figure.add_axes((left, (bottom + heights[1] + gap) / tall, right - left, heights[0] / tall))
    curve = figure.add_axes((left, bottom / tall, right - left, heights[1] / tall))
    _title(figure, figures, left, tall)
    figure.text(right + 0.01, 1 - 0.3 / tall, _key(figures, scale), fontsize=8, va="center")
    _lanes(lanes, figures, nodes, scale, fontsize=min(9.0, 0.75 * 72 * lane_inches))
    _curve(curve, figures)
    for axes in (lanes, curve):
        _time_axis(axes, end)
    lanes.tick_params(labelbottom=False)
    curve.set_xlabel("time since the first batch")
    return figure


def _title(figure: Figure, figures: RunFigures, left: float, tall: float) -> None:
    figure.text(left, 1 - 0.3 / tall, figures.run, fontsize=14, fontweight="bold", va="center")
    figure.text(left, 1 - 0.58 / tall, headline(figures), fontsize=9.5, va="center")


def _lanes(axes: Axes, figures: RunFigures, nodes: Sequence[NodeFigures], scale: _Scale, *, fontsize: float) -> None:
    rows = {node.node: row for row, node in enumerate(nodes)}
    if too_narrow(figures.boxes, scale.seconds(SMALLEST_PIXELS)):
        _busy_shares(axes, figures.boxes, rows, scale)
    else:
        _boxes(axes, figures.boxes, rows, scale)
    _remainders(axes, figures, rows, scale)
    if figures.ideal_seconds:
        axes.axvline(figures.ideal_seconds, color=IDEAL, linestyle=(0, (4, 3)), linewidth=1.2, zorder=0)
    axes.set_ylim(len(nodes) - 0.45, -0.55)
    axes.set_yticks(range(len(nodes)), [node.node for node in nodes], fontsize=fontsize)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    for row, node in enumerate(nodes):
        place = axes.get_yaxis_transform()
        axes.text(1.012, row, lane_label(node), transform=place, va="center", clip_on=False, fontsize=fontsize)


def _key(figures: RunFigures, scale: _Scale) -> str:
    return (
        "shade: share of time busy"
        if too_narrow(figures.boxes, scale.seconds(SMALLEST_PIXELS))
        else "colour: lane of the data"
    )


def _boxes(axes: Axes, boxes: Sequence[Box], rows: dict[str, int], scale: _Scale) -> None:
    from matplotlib.collections import PolyCollection

    shades = palette(max(box.lane for box in boxes) + 1)
    corners = [_corners(box.start, box.finish, rows[box.node], scale) for box in boxes]
    colours = [shades[box.lane] for box in boxes]
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0))
    labels = [short(box.identifier) for box in boxes]
    room = 10.5 * max(map(len, labels)) + 10.0
    for box, label, colour in zip(boxes, labels, colours, strict=True):
        if scale.width(box.finish - box.start) > room:
            middle = (box.start + box.finish) / 2
            axes.text(middle, rows[box.node], label, ha="center", va="center", fontsize=8, color=ink_on(colour))


def _corners(start: float, finish: float, row: int, scale: _Scale) -> list[tuple[float, float]]:
    gap = min(1.0 / scale.pixels * scale.end, 0.12 * (finish - start))
    left, right, top, bottom = start + gap, finish - gap, row - 0.36, row + 0.36
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _busy_shares(axes: Axes, boxes: Sequence[Box], rows: dict[str, int], scale: _Scale) -> None:
    """Fill each node's lane with its busy share, a column per two pixels."""
    import numpy as np
    from matplotlib.colors import to_rgb

    columns = max(1, int(scale.pixels / 2))
    edges = np.linspace(0.0, scale.end, columns + 1)
    for name, row in rows.items():
        own = [box for box in boxes if box.node == name]
        if not own:
            continue
        busy = np.diff(_done(own, edges, [box.finish - box.start for box in own])) / (scale.end / columns)
        image = np.empty((1, columns, 4))
        image[..., :3], image[..., 3] = to_rgb(RUN), np.clip(busy, 0.0, 1.0)
        axes.imshow(image, extent=(0.0, scale.end, row + 0.36, row - 0.36), aspect="auto", interpolation="nearest")


def _remainders(axes: Axes, figures: RunFigures, rows: dict[str, int], scale: _Scale) -> None:
    least = 16.0 / scale.pixels * scale.end
    for rest in figures.remainders:
        if rest.node not in rows:
            continue
        colour = LOST if rest.lost else INK
        start = min(rest.start, scale.end - least)
        corners = _corners(start, max(rest.finish, start + least), rows[rest.node], scale)
        axes.fill(*zip(*corners, strict=True), facecolor="none", edgecolor=colour, hatch="////", linewidth=1.0)


def _curve(axes: Axes, figures: RunFigures) -> None:
    """Batches done over time, against the ideal and against a fixed split at the same rates."""
    import numpy as np

    times = np.linspace(0.0, figures.makespan_seconds, 600)
    done = _done(figures.boxes, times, [box.batches for box in figures.boxes]) / max(1, figures.batches)
    rates = [node.batches_per_second for node in figures.nodes if node.batches_per_second]
    part = figures.batches / max(1, len(rates))
    fixed = sum((np.minimum(rate * times, part) for rate in rates), np.zeros_like(times)) / max(1, figures.batches)
    ideal = np.minimum(times / (figures.ideal_seconds or 1.0), 1.0)
    axes.plot(times, fixed, color=FIXED, linewidth=1.4, linestyle=(0, (1, 1.5)))
    axes.plot(times, ideal, color=IDEAL, linewidth=1.4, linestyle=(0, (4, 3)))
    axes.plot(times, done, color=RUN, linewidth=2.2)
    axes.fill_between(times, done, color=RUN, alpha=0.12, linewidth=0)
    axes.set_ylim(0, 1.06)
    axes.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _legend(axes, figures)


def _legend(axes: Axes, figures: RunFigures) -> None:
    lines: list[tuple[str, str, Any]] = [
        ("this run", RUN, "-"),
        (f"ideal {duration(figures.ideal_seconds)}", IDEAL, (0, (4, 3))),
        (f"fixed split {duration(figures.fixed_split_seconds)}", FIXED, (0, (1, 1.5))),
    ]
    from matplotlib.lines import Line2D

    handles: list[Any] = [Line2D([], [], color=colour, linestyle=style) for _, colour, style in lines]
    axes.legend(
        handles,
        [text for text, *_ in lines],
        title="batches trained",
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        borderpad=0.2,
        borderaxespad=0.8,
        frameon=False,
        alignment="left",
        handlelength=1.8,
        fontsize=8,
        title_fontsize=8,
    )


def _done(boxes: Sequence[Box], times: Any, amounts: Sequence[float]) -> Any:
    """Return the amount done at each time if each box adds its amount evenly from start to finish."""
    import numpy as np

    starts = np.array([box.start for box in boxes])
    finishes = np.maximum(np.array([box.finish for box in boxes]), starts + 1e-9)
    slopes = np.asarray(amounts, dtype=float) / (finishes - starts)
    moments = np.concatenate([starts, finishes])
    order = np.argsort(moments, kind="stable")
    moments, changes = moments[order], np.concatenate([slopes, -slopes])[order]
    slope = np.cumsum(changes)
    totals = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(moments))])
    return np.interp(times, moments, totals, left=0.0)


def _time_axis(axes: Axes, end: float) -> None:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    axes.set_xlim(0, end * 1.002)
    axes.xaxis.set_major_locator(MultipleLocator(tick_seconds(end)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value, end)))
