"""The charts of a page: the timeline and lines over time, as SVG that grows with the page. Pure.

Text is never stretched: labels are HTML or stand at percentages of the width, and only lines and
boxes are scaled. So a chart is as readable at the width of a phone as on a wall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradientmail.report.figures import Box, NodeFigures, Remainder, RunFigures
from gradientmail.report.markup import Markup, element, joined
from gradientmail.report.timeline import (
    LANES,
    boxes_by_node,
    busy_shares,
    clock,
    end_seconds,
    ink_on,
    lane_label,
    palette,
    short,
    shown_nodes,
    tick_seconds,
    too_narrow,
)
from gradientmail.report.words import count, duration

MOST_LANES = 100
"""Nodes that have a lane; a page with more would not be read."""
MOST_LINES = 24
MOST_BOXES = 4000
"""With more units than these, each lane shows how busy the node was."""
SMALLEST_SHARE = 0.002
"""Of the timeline's width: two pixels of a thousand."""
LABEL_SHARE = 0.06
"""Of the width: a box that wide has room for its unit's name."""
COLUMNS = 250
SHADES = 10
MOST_TICKS = 6
POINTS = 500
"""Points of a line at most: more than there are pixels help nobody."""
WIDE, HIGH = 1000.0, 100.0
"""Units of the plots' own coordinates."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its points in order of x."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, with round ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    written: Callable[[float], str]

    def part(self, value: float) -> float:
        """Return where a value lies, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


# The timeline.


def timeline(figures: RunFigures) -> Markup:
    """Return a lane for each node and a box for each unit, or shades where boxes would be too narrow to see."""
    end = end_seconds(figures)
    nodes, boxes = shown_nodes(figures), boxes_by_node(figures.boxes)
    shaded = shades_only(figures)
    colours = palette(1 + max((box.lane for box in figures.boxes), default=0))
    rests: dict[str, list[Remainder]] = {}
    for rest in figures.remainders:
        rests.setdefault(rest.node, []).append(rest)
    lanes = []
    for node in nodes[:MOST_LANES]:
        own = boxes.get(node.node, [])
        marks = _shades(own, end) if shaded else [_box(box, end, colours) for box in own]
        marks += [_rest(rest, end) for rest in rests.get(node.node, [])]
        lanes.append(_lane(node, [*marks, *_ideal(figures, end)]))
    return element("div", *lanes, _time_axis(end), class_="lanes")


def shades_only(figures: RunFigures) -> bool:
    """Return whether the timeline shows how busy the nodes were, not single units."""
    least = SMALLEST_SHARE * end_seconds(figures)
    return len(figures.boxes) > MOST_BOXES or too_narrow(figures.boxes, least)


def _lane(node: NodeFigures, marks: Sequence[Markup]) -> Markup:
    label = f"{node.node}: {lane_label(node)}"
    return element(
        "div",
        element("span", node.node, class_="lane-name"),
        element("svg", *marks, class_="lane", role="img", aria_label=label),
        element("span", lane_label(node), class_="lane-note"),
        class_="lane-row",
    )


def _box(box: Box, end: float, colours: Sequence[str]) -> Markup:
    colour, width = colours[box.lane], (box.finish - box.start) / end
    batches = "1 batch" if box.batches == 1 else f"{count(box.batches)} batches"
    since, until = clock(round(box.start, 1), end), clock(round(box.finish, 1), end)
    told = f"{short(box.identifier)} on {box.node}: {batches}, {since} to {until}"
    shape = element(
        "rect", element("title", told), class_="box", x=_share(box.start / end), width=_share(width), fill=colour
    )
    if width < LABEL_SHARE:
        return shape
    middle = _share((box.start + box.finish) / 2 / end)
    name = element("text", short(box.identifier), class_="unit", x=middle, y="50%", fill=ink_on(colour))
    return joined([shape, name])


def _shades(boxes: Sequence[Box], end: float) -> list[Markup]:
    """Return the stretches in which the node was equally busy, the idle ones left out."""
    levels = [round(SHADES * share) for share in busy_shares(boxes, end, COLUMNS)]
    found, first = [], 0
    for column in range(1, COLUMNS + 1):
        if column < COLUMNS and levels[column] == levels[first]:
            continue
        if level := levels[first]:
            x, width = _share(first / COLUMNS), _share((column - first) / COLUMNS)
            found.append(element("rect", class_="shade", x=x, width=width, fill_opacity=level / SHADES))
        first = column
    return found


def _rest(rest: Remainder, end: float) -> Markup:
    what = "lost" if rest.lost else "in progress"
    start = min(max(0.0, rest.start), 0.985 * end)
    width = max(0.015, (rest.finish - start) / end)
    title = element("title", f"{count(rest.units, 'unit')} {what}")
    return element("rect", title, class_=f"rest {what.split()[0]}", x=_share(start / end), width=_share(width))


def _ideal(figures: RunFigures, end: float) -> list[Markup]:
    if not figures.ideal_seconds or figures.ideal_seconds > end:
        return []
    place = _share(figures.ideal_seconds / end)
    title = element("title", f"ideal end: {duration(figures.ideal_seconds)}")
    return [element("line", title, class_="ideal", x1=place, x2=place, y1="0", y2="100%")]


def _time_axis(end: float) -> Markup:
    return element("div", element("span"), _x_axis(_seconds_axis(end)), element("span"), class_="lane-row")


# Lines.


def lines(
    series: Sequence[Series], *, label: str, x: Axis, y: Axis, stepped: bool = False, legend: Callable[[Series], str]
) -> Markup:
    """Return a chart of the series, with a legend. `label` says what it shows, for those who cannot see it."""
    shown = series[:MOST_LINES]
    drawn = [_line(each, place, x, y, stepped=stepped) for place, each in enumerate(shown)]
    grid = [element("path", d=f"M0 {_down(y, tick)}H{WIDE:g}", class_="grid") for tick in y.ticks]
    box = f"0 0 {WIDE:g} {HIGH:g}"
    plot = element(
        "svg", *grid, *drawn, class_="plot", viewBox=box, preserveAspectRatio="none", role="img", aria_label=label
    )
    keys = [_key(place, legend(each)) for place, each in enumerate(shown)]
    more = len(series) - len(shown)
    rest = [element("li", f"and {count(more, 'more node')}")] if more > 0 else []
    chart = element("div", _y_axis(y), plot, element("span"), _x_axis(x), class_="chart")
    return joined([chart, element("ul", *keys, *rest, class_="legend")])


def seconds_axis(series: Sequence[Series]) -> Axis:
    """Return the axis of times from 0 to the last point, in seconds."""
    return _seconds_axis(max((each.points[-1][0] for each in series if each.points), default=1.0) or 1.0)


def number_axis(values: Sequence[float], *, from_zero: bool, most: int = MOST_TICKS) -> Axis:
    """Return an axis that holds the values."""
    low, high = (0.0 if from_zero else min(values, default=0.0)), max(values, default=1.0)
    if high <= low:
        low, high = low - 0.5 * (not from_zero), low + 1.0
    step = _round_step((high - low) / most)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [place * step for place in range(first, last + 1)]
    digits = max(0, -math.floor(math.log10(step)))
    return Axis(ticks[0], ticks[-1], ticks, lambda value: f"{value:,.{digits}f}")


def _seconds_axis(end: float) -> Axis:
    step = tick_seconds(end, MOST_TICKS)
    ticks = [place * step for place in range(int(end / step) + 1)]
    return Axis(0.0, end, ticks, lambda value: clock(round(value, 6), end))


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * least)


def thinned(points: Sequence[Point], most: int = POINTS) -> Sequence[Point]:
    """Return at most `most` of the points, evenly chosen, the first and the last among them."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]


def _line(series: Series, place: int, x: Axis, y: Axis, *, stepped: bool) -> Markup:
    points = [(WIDE * x.part(each[0]), _down(y, each[1])) for each in thinned(series.points)]
    if not points:
        return Markup()
    across = "H{0:.1f}V{1:.1f}" if stepped else "L{0:.1f} {1:.1f}"
    if stepped:
        points = [(0.0, _down(y, y.low)), *points, (WIDE, points[-1][1])]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(across.format(*point) for point in points[1:])
    return element("path", element("title", series.name), d=path, class_="line", **_look(place))


def _key(place: int, text: str) -> Markup:
    sample = element("path", d="M0 5H24", class_="line", **_look(place))
    return element("li", element("svg", sample, class_="key", viewBox="0 0 24 10", aria_hidden="true"), text)


def _look(place: int) -> dict[str, str | None]:
    """Return colour and dashes of a line: dashes once the colours are used up."""
    dashes = (None, "6 3", "2 3")[place // len(LANES) % 3]
    return {"stroke": LANES[place % len(LANES)], "stroke_dasharray": dashes}


def _down(axis: Axis, value: float) -> float:
    return round(HIGH * (1 - axis.part(value)), 2)


def _y_axis(axis: Axis) -> Markup:
    texts = [element("text", axis.written(tick), x="100%", y=_share(1 - axis.part(tick))) for tick in axis.ticks]
    return element("svg", *texts, class_="y-axis", aria_hidden="true")


def _x_axis(axis: Axis) -> Markup:
    texts = []
    for tick in axis.ticks:
        part = axis.part(tick)
        anchor = "start" if part < 0.02 else "end" if part > 0.95 else "middle"
        texts.append(element("text", axis.written(tick), x=_share(part), y="14", text_anchor=anchor))
    return element("svg", *texts, class_="x-axis", aria_hidden="true")


def _share(part: float) -> str:
    return f"{100 * part:.3f}".rstrip("0").rstrip(".") + "%"
