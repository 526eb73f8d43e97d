"""The pace of a slowed node: see slowness."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gradientmail.training.slowness import Slowness


class Pace:
    """Slows a loop down. `sleep` must return at once when the node is to stop.

    What was slept too long is made up by the next sleeps, up to one batch.
    """

    def __init__(
        self,
        slowness: Slowness,
        *,
        sleep: Callable[[float], object],
        compute_clock: Callable[[], float] = time.thread_time,
        wall_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._slowness = slowness
        self._sleep = sleep
        self._compute_clock = compute_clock
        self._wall_clock = wall_clock
        self._owed = 0.0
        self._started = (0.0, 0.0)

    def begin(self) -> None:
        """Mark the start of a batch."""
        self._started = (self._compute_clock(), self._wall_clock())

    def end(self) -> None:
        """Sleep for what is missing to the batch's simulated duration."""
        compute, wall = self._compute_clock() - self._started[0], self._wall_clock() - self._started[1]
        duration = self._slowness.duration(compute=compute, elapsed=wall)
        self._owed = max(self._owed + duration - wall, -duration)
        if self._owed > 0:
            start = self._wall_clock()
            self._sleep(self._owed)
            self._owed -= self._wall_clock() - start


def pace_for(slowness: Slowness, device: torch.device, sleep: Callable[[float], object]) -> Pace | None:
    """Return the pace of a node on this device, or None where nothing is to be slowed."""
    if slowness.factor <= 1.0:
        return None
    clock = _device_clock(device) if device.type == "cuda" else time.thread_time
    return Pace(slowness, sleep=sleep, compute_clock=clock)


def _device_clock(device: torch.device) -> Callable[[], float]:
    def seconds() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return seconds
