"""Simulated slowness: making a node of equal hardware train like a slower one.

A batch of a node slowed by `factor` takes `factor` times its own compute time; the rest is slept.

On a CPU, compute time is the CPU time of the training thread, so that the time during which another
process had the core does not count: nodes on one machine must not slow each other down, or the slow
ones would be slowed by `factor` times as much. That holds while the machine keeps up, and it does if
the fastest node is slowed too, by `headroom`, until all nodes together need no more cores than there
are. Where contention takes more than the headroom, the fastest node falls behind its own pace; then
every node's time is stretched alike, so that their ratio stays. On CUDA, compute time is the wall
time until the device is done.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slowness:
    """How slow a node is to be."""

    factor: float
    """Simulated duration of a batch, in units of its compute time."""
    headroom: float = 1.0
    """The factor of the run's fastest node."""

    def duration(self, *, compute: float, elapsed: float) -> float:
        """Return the simulated seconds of a batch that computed for `compute` in `elapsed` seconds of wall time."""
        return self.factor * max(compute, elapsed / self.headroom)
