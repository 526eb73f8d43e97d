"""JSON that every program can read: RFC 8259 has neither NaN nor infinities, and Python writes both all the same.

A loss that has diverged is news, so it is not left out: it is written as "NaN", "Infinity" or "-Infinity", strings,
as protobuf's JSON mapping has them. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(value: object, **options: Any) -> str:
    """Return the value as JSON. `options` are those of json.dumps. Raises what json.dumps raises."""
    return json.dumps(plain(value), allow_nan=False, **options)


def plain(value: object) -> object:
    """Return a copy in which numbers that JSON lacks are strings."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def number(value: object) -> float:
    """Return the number that `plain` may have made a string of. Raises ValueError or TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"not a number: {str(value)[:80]!r}")
    return float(value)
