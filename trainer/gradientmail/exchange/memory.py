"""Gives memory that has been freed back to the system.

The C library keeps freed blocks of up to 32 MiB. Blobs and merges free many of them, of ever
different sizes: without this, a process was measured to keep ten times what it used.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

SMALLEST_BYTES = 4 << 20
"""Below so many bytes of parameters it is not worth the milliseconds."""


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None  # not the GNU C library
    return found


def give_back() -> None:
    """Return freed memory to the system, where the C library can. Takes milliseconds; releases the interpreter."""
    trim = _trim()
    if trim is not None:
        trim(0)
