"""Learning rates by dataset step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class WarmupCosine:
    """A linear rise to `peak` over `warmup` steps, then half a cosine down to `final`, reached at step `steps`."""

    peak: float
    final: float
    warmup: int
    steps: int

    def __call__(self, step: int) -> float:
        """Return the learning rate of a dataset step; `final` beyond the last one."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return self.final + (self.peak - self.final) * 0.5 * (1.0 + math.cos(math.pi * done))
