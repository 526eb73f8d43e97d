"""Draws the study's curves.

.venv/bin/python -m bench.exchange.plots results.jsonl docs/images
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench.exchange.study import Setting

mpl.use("svg")
from matplotlib import pyplot

LABELS = {
    "a": "(a) synchronous data parallel",
    "b": "(b) synchronous DiLoCo",
    "c": "(c) exchange, equal speeds",
    "d": "(d) exchange, 4:2:2:1",
    "e": "(e) exchange, nodes joining and dying",
    "f": "(f) fastest node without exchange, 4:2:2:1",
    "g": "(g) one node without exchange, equal speeds",
}
COLOURS = {"a": "black", "b": "tab:gray", "c": "tab:green", "d": "tab:blue", "e": "tab:purple", "f": "tab:red"}
COLOURS["g"] = "tab:orange"


def by_name(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the runs with the default options, by variant."""
    default, found = Setting(), defaultdict[str, list[dict[str, Any]]](list)
    for line in path.read_text().splitlines():
        run = json.loads(line)
        options = {name: getattr(default, name) for name in default.__dataclass_fields__ if name != "seed"}
        if all(run.get(name, value) == value for name, value in options.items()):
            found[run["name"]].append(run)
    return found


def draw(runs: dict[str, list[dict[str, Any]]], axis: int, label: str, file: Path) -> None:
    """Draw loss over seconds (axis 0) or samples (axis 1): a line per seed, the first with the label."""
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for name in sorted(runs):
        for index, run in enumerate(runs[name]):
            points = run["points"][1:]
            xs, ys = [point[axis] for point in points], [point[2] for point in points]
            axes.plot(xs, ys, color=COLOURS[name], alpha=0.8, linewidth=1, label=None if index else LABELS[name])
    axes.set_xlabel(label)
    axes.set_ylabel("held-out loss, nats per byte")
    axes.set_ylim(top=2.6)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def table(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Print the last losses of each variant."""
    for name in sorted(runs):
        last = [run["points"][-1][2] for run in runs[name]]
        seconds = [run["points"][-1][0] for run in runs[name]]
        spread = f"{min(last):.4f} to {max(last):.4f}"
        print(f"| {LABELS[name]} | {statistics.mean(last):.4f} | {spread} | {statistics.mean(seconds):,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "exchange"
    runs = by_name(arguments.results)
    draw(runs, 1, "samples (sequences of 32 bytes) trained by all nodes", arguments.folder / "exchange-samples.svg")
    draw(runs, 0, "time, in steps of the fastest node", arguments.folder / "exchange-time.svg")
    table(runs)


if __name__ == "__main__":
    main()
