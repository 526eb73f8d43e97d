"""Simulated slowness: making a node of equal hardware train like a slower one.

A batch of a node slowed by `factor` takes `factor` times its own compute time; the rest is slept.
On a CPU, compute time is the CPU time of the training thread: the time during which another
process had the core is not in it, so that contention does not slow the slow nodes more than
the others. On CUDA it is the wall time until the device is done. The time lost to contention, or by
sleeping too long, is made up by shorter sleeps afterwards, but never more than one batch's worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Debt:
    """Seconds that a slowed node still has to let pass; negative where it lags behind."""

    seconds: float = 0.0

    def after(self, *, factor: float, compute: float, elapsed: float) -> Debt:
        """Return the debt after a batch that computed for `compute` seconds in `elapsed` seconds of wall time."""
        wanted = factor * compute
        return Debt(max(self.seconds + wanted - elapsed, -wanted))

    def slept(self, seconds: float) -> Debt:
        """Return the debt after a sleep."""
        return Debt(self.seconds - seconds)


class Pace:
    """Slows a loop down by `factor`. `sleep` must return at once when the node is to stop."""

    def __init__(
        self,
        factor: float,
        *,
        sleep: Callable[[float], object],
        compute_clock: Callable[[], float] = time.thread_time,
        wall_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._factor = factor
        self._sleep = sleep
        self._compute_clock = compute_clock
        self._wall_clock = wall_clock
        self._debt = Debt()
        self._started = (0.0, 0.0)

    def begin(self) -> None:
        """Mark the start of a batch."""
        self._started = (self._compute_clock(), self._wall_clock())

    def end(self) -> None:
        """Sleep for what is missing to the batch's simulated duration."""
        compute, wall = self._compute_clock() - self._started[0], self._wall_clock() - self._started[1]
        self._debt = self._debt.after(factor=self._factor, compute=compute, elapsed=wall)
        if self._debt.seconds > 0:
            start = self._wall_clock()
            self._sleep(self._debt.seconds)
            self._debt = self._debt.slept(self._wall_clock() - start)


def pace_for(factor: float, device: torch.device, sleep: Callable[[float], object]) -> Pace | None:
    """Return the pace of a node that is `factor` times slower, or None where nothing is to be slowed."""
    if factor <= 1.0:
        return None
    clock = _device_clock(device) if device.type == "cuda" else time.thread_time
    return Pace(factor, sleep=sleep, compute_clock=clock)


def _device_clock(device: torch.device) -> Callable[[], float]:
    def seconds() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return seconds
