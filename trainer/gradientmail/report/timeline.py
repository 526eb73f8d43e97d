"""What a timeline shows, however it is drawn: colours, ticks, labels, busy shares. Pure.

Boxes are told apart by colours that colour-blind readers can tell apart too (Okabe and Ito 2008);
beyond eight lanes by shades of viridis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gradientmail.report.figures import Box, NodeFigures, RunFigures
from gradientmail.report.words import count, duration, percent

LANES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#8C6BB1")
VIRIDIS = ((72, 36, 117), (56, 88, 140), (39, 127, 142), (31, 161, 135), (74, 194, 109), (160, 218, 57))
"""Six colours at even distances, its darkest and its lightest left out."""


def headline(figures: RunFigures) -> str:
    """Return the run's figures in one line."""
    busy = sum(node.units > 0 for node in figures.nodes)
    done = f"{count(figures.consumed_units, 'unit')} trained by {count(busy, 'node')}"
    parts = [f"{done} in {duration(figures.makespan_seconds)}"]
    if figures.over_ideal:
        parts.append(f"{figures.over_ideal:.3f} \N{MULTIPLICATION SIGN} the ideal {duration(figures.ideal_seconds)}")
        parts.append(f"a fixed split would have taken {duration(figures.fixed_split_seconds)}")
    if figures.lost_units:
        parts.append(f"{count(figures.lost_units, 'unit')} lost")
    return "   ·   ".join(parts)


def shown_nodes(figures: RunFigures) -> list[NodeFigures]:
    """Return the nodes that have a lane: those that trained or lost units."""
    return [node for node in figures.nodes if node.units or node.lost_units]


def lane_label(node: NodeFigures) -> str:
    """Return what stands beside a node's lane."""
    lost = f", {count(node.lost_units)} lost" if node.lost_units else ""
    return f"{count(node.units, 'unit')}, {percent(node.share)}{lost}"


def end_seconds(figures: RunFigures) -> float:
    """Return where the time axis ends, in seconds since the first batch; above 0."""
    return max([figures.makespan_seconds, *(rest.finish for rest in figures.remainders)]) or 1.0


def too_narrow(boxes: Sequence[Box], least_seconds: float) -> bool:
    """Return whether more than half of the boxes are shorter than this, so that shades show more than boxes."""
    return 2 * sum(box.finish - box.start < least_seconds for box in boxes) > len(boxes)


def boxes_by_node(boxes: Sequence[Box]) -> dict[str, list[Box]]:
    """Return each node's boxes, in the order in which they came."""
    found: dict[str, list[Box]] = {}
    for box in boxes:
        found.setdefault(box.node, []).append(box)
    return found


def busy_shares(boxes: Sequence[Box], end: float, columns: int) -> list[float]:
    """Return for each of `columns` even stretches of 0 to `end` seconds which share of it the boxes cover, 0 to 1."""
    width = end / columns
    covered = [0.0] * columns
    for box in boxes:
        first, last = (min(columns - 1, max(0, int(moment / width))) for moment in (box.start, box.finish))
        for column in range(first, last + 1):
            overlap = min(box.finish, (column + 1) * width) - max(box.start, column * width)
            covered[column] += max(0.0, overlap)
    return [min(1.0, seconds / width) for seconds in covered]


def tick_seconds(end: float, most: int = 10) -> float:
    """Return a round distance of ticks, in seconds, for an axis from 0 to `end`: at most `most` of them."""
    rounds = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    fitting = (step for step in rounds if end / step <= most)
    if end < 0.8 * most:
        power = 10.0 ** math.floor(math.log10(end / (0.8 * most)))
        return next(power * factor for factor in (1, 2, 5, 10) if end / (power * factor) <= most)
    return float(next(fitting, 86400 * math.ceil(end / (86400 * most))))


def clock(seconds: float, end: float) -> str:
    """Return a moment on an axis from 0 to `end`: seconds, min:s or h:min:s."""
    if end < 120:
        return f"{seconds:g} s"
    whole = round(seconds)
    if end < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def palette(lanes: int) -> Sequence[str]:
    """Return a colour for each lane, as #rrggbb; at least eight."""
    if lanes <= len(LANES):
        return LANES
    return [_viridis(lane / (lanes - 1)) for lane in range(lanes)]


def _viridis(place: float) -> str:
    """Return the colour at a place from 0 to 1."""
    low = min(int(place * (len(VIRIDIS) - 1)), len(VIRIDIS) - 2)
    part = place * (len(VIRIDIS) - 1) - low
    mixed = (round(a + part * (b - a)) for a, b in zip(VIRIDIS[low], VIRIDIS[low + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on the colour."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return "#000000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.2 else "#ffffff"


def short(identifier: str) -> str:
    """Return a unit's group and lane without what fills them up: `7-2` for `000007-2.json`."""
    group, _, lane = identifier.removesuffix(".json").partition("-")
    return f"{group.lstrip('0') or '0'}-{lane.lstrip('0') or '0'}" if lane else identifier


def consumed_over_time(boxes: Sequence[Box]) -> Mapping[str, list[tuple[float, float]]]:
    """Return for each node (seconds, units consumed until then), a step at the end of each box."""
    return {
        node: [(moment, float(number)) for number, moment in enumerate(sorted(box.finish for box in own), start=1)]
        for node, own in sorted(boxes_by_node(boxes).items())
    }
