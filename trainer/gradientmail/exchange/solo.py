"""The session of a node that exchanges nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Solo:
    """Counts steps and samples, and leaves the parameters alone."""

    def __init__(self) -> None:
        self.steps = 0
        self.samples = 0

    def step(self, samples: int) -> None:
        """Count one optimizer step over `samples` tokens. Raises ValueError if there are none."""
        if samples < 1:
            raise ValueError(f"samples is {samples}: an optimizer step covers at least 1")
        self.steps += 1
        self.samples += samples

    def leave_within(self, seconds: float) -> None:
        """Nothing is waited for."""

    @property
    def statistics(self) -> None:
        """None: nothing is exchanged."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
