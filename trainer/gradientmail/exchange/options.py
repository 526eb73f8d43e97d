"""The options of a session, checked. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradientmail.exchange.records import Agreement

TRANSFER_DTYPES = ("bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class Options:
    """What a node decides for itself; times in seconds."""

    patience_seconds: float
    takeover_seconds: float
    outage_seconds: float
    flush_seconds: float
    poll_seconds: float | None

    def __post_init__(self) -> None:
        for name in ("patience_seconds", "takeover_seconds", "outage_seconds", "flush_seconds"):
            check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        check(
            "poll_seconds",
            self.poll_seconds,
            self.poll_seconds is None or self.poll_seconds > 0,
            "more than 0, or None",
        )


def agreement(
    *, sync_every: int, fragments: int, outer_lr: float, outer_momentum: float, transfer_dtype: object
) -> Agreement:
    """Return the options that a whole run shares. Raises ValueError for a number or type out of range."""
    dtype = str(transfer_dtype).removeprefix("torch.")
    check("sync_every", sync_every, sync_every >= 1, "at least 1")
    check("fragments", fragments, 1 <= fragments <= 9999, "from 1 to 9999")
    check("outer_lr", outer_lr, math.isfinite(outer_lr) and outer_lr > 0, "more than 0")
    check("outer_momentum", outer_momentum, 0 <= outer_momentum < 1, "at least 0 and less than 1")
    check("transfer_dtype", transfer_dtype, dtype in TRANSFER_DTYPES, f"one of {', '.join(TRANSFER_DTYPES)}")
    return Agreement(sync_every, fragments, float(outer_lr), float(outer_momentum), dtype)


def check(name: str, value: object, holds: bool, expected: str) -> None:
    """Raise ValueError, naming the option, unless it holds."""
    if not holds:
        raise ValueError(f"{name} is {value}: expected {expected}")
