"""Makespan over the ideal of 800 units at 4:2:2:1 on real processes, steady and with A slowed half-way."""

from __future__ import annotations

import argparse

from bench.figures import Figure, show
from bench.nodes import train_shared
from gradientmail import grid
from gradientmail.simulation import SimulatedNode, ideal_time

STEPS, UNIT_STEPS, LANES, PREFETCH = 4000, 20, 4, 8


def nodes(batch_seconds: float, *, slowed_at: float | None) -> list[SimulatedNode]:
    """Return A, B, C and D, where A trains a batch in `batch_seconds`, from `slowed_at` on in four times that."""
    speed = 1 / batch_seconds
    a = ((0.0, speed),) if slowed_at is None else ((0.0, speed), (slowed_at, speed / 4))
    return [
        SimulatedNode("A", a),
        *(SimulatedNode.steady(name, speed / slowness) for name, slowness in (("B", 2), ("C", 2), ("D", 4))),
    ]


def measure(batch_seconds: float, *, slowed: bool, taper: bool) -> Figure:
    """Run one arrangement."""
    half = ideal_time(nodes(batch_seconds, slowed_at=None), STEPS * LANES) / 2
    fleet = nodes(batch_seconds, slowed_at=half if slowed else None)
    trained = train_shared(grid(steps=STEPS, unit_steps=UNIT_STEPS, lanes=LANES, taper=taper), fleet, prefetch=PREFETCH)
    assert sum(node.batches for node in trained) == STEPS * LANES
    ratio = max(node.finished for node in trained) / ideal_time(fleet, STEPS * LANES)
    goal = 1.005 if taper else 1.02
    what = f"makespan / ideal, {'A slowed half-way' if slowed else 'steady'}, {'tapered' if taper else 'plain'}"
    return Figure(what, f"{ratio:.4f}", f"at most {goal}", ratio <= goal)


def main() -> None:
    """Run all four arrangements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-seconds", type=float, default=0.015, help="time in which A trains one batch")
    batch_seconds = parser.parse_args().batch_seconds
    show([measure(batch_seconds, slowed=slowed, taper=taper) for slowed in (False, True) for taper in (False, True)])


if __name__ == "__main__":
    main()
