"""What the training loop needs of any session."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from gradientmail.exchange.statistics import ExchangeStatistics


class TrainingSession(Protocol):
    """A context manager round the training loop; `step` is called by the loop's thread after each optimizer step."""

    def step(self, samples: int) -> None:
        """Take note of one optimizer step over `samples` tokens. Never waits for another node."""
        ...

    def leave_within(self, seconds: float) -> None:
        """Give up entering the block, or leave it within so many seconds from now. May be called from any thread."""
        ...

    @property
    def statistics(self) -> ExchangeStatistics | None:
        """What has been exchanged so far; None if this session exchanges nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
