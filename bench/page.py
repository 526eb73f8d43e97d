"""The page's figure on real processes: 24 units, A twice as fast as B and C, four times as fast as D."""

from __future__ import annotations

from bench.figures import Figure, show
from bench.nodes import train_shared, train_split
from gradientmail import grid
from gradientmail.simulation import SimulatedNode

UNIT_STEPS = 5
TIME_UNIT_SECONDS = 1.2
NODES = [
    SimulatedNode.steady(name, UNIT_STEPS / TIME_UNIT_SECONDS / slowness)
    for name, slowness in (("A", 1), ("B", 2), ("C", 2), ("D", 4))
]


def main() -> None:
    """Run both and print the figures."""
    units = grid(steps=6 * UNIT_STEPS, unit_steps=UNIT_STEPS, lanes=4)
    shared = train_shared(units, NODES, claim_ahead=0)
    split = train_split(units, NODES)
    counts = "/".join(str(node.units) for node in shared)
    end = max(node.finished for node in shared) / TIME_UNIT_SECONDS
    fixed = max(node.finished for node in split) / TIME_UNIT_SECONDS
    show(
        [
            Figure("units of A/B/C/D", counts, "11/5/5/3", counts == "11/5/5/3"),
            Figure("end with the shared queue, time units", f"{end:.2f}", "12 within 3 %", abs(end / 12 - 1) <= 0.03),
            Figure(
                "end with the fixed split, time units", f"{fixed:.2f}", "24 within 3 %", abs(fixed / 24 - 1) <= 0.03
            ),
        ]
    )


if __name__ == "__main__":
    main()
