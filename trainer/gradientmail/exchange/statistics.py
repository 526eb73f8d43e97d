"""What a session counts, and whom it tells. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gradientmail.progress import ExchangeCounts


@dataclass(frozen=True, slots=True)
class ExchangeStatistics(ExchangeCounts):
    """A snapshot of one session's counts since it was entered."""

    steps: int = 0
    """Optimizer steps of this node."""
    samples: int = 0
    """Samples passed to `step`."""


class ExchangeObserver(Protocol):
    """Told of a session's events on its background thread, or the leaving one; never in `step`. Must not raise."""

    def contributed(self, fragment: int, version: int) -> None:
        """A contribution to the round of this version has been published."""

    def adopted(self, fragment: int, version: int, merged: bool, staleness_steps: int) -> None:
        """A version has been adopted; whether it holds this node's contribution, and how old that was."""

    def closed(self, fragment: int, version: int, contributors: int) -> None:
        """This node has merged so many contributions and tried to close the round."""

    def refused(self, key: str, why: str) -> None:
        """An object has been refused."""


class Silent:
    """Tells nobody."""

    def contributed(self, fragment: int, version: int) -> None:
        """See ExchangeObserver."""

    def adopted(self, fragment: int, version: int, merged: bool, staleness_steps: int) -> None:
        """See ExchangeObserver."""

    def closed(self, fragment: int, version: int, contributors: int) -> None:
        """See ExchangeObserver."""

    def refused(self, key: str, why: str) -> None:
        """See ExchangeObserver."""


@dataclass(slots=True)
class Counts:
    """Counts under way. The training thread writes the first, whoever drives the protocol the others."""

    blocked_seconds: float = 0.0
    contributions: int = 0
    merged: int = 0
    missed: int = 0
    adopted: int = 0
    skipped: int = 0
    closed: int = 0
    refused: int = 0
    requests: int = 0
    staleness_steps: int = 0
    staleness_steps_total: int = 0
    final_samples: int = 0
