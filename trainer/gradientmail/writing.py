"""What keeps a command from writing where the user wanted, in one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradientmail.exits import StoreFailed, UserError


@contextmanager
def written_to(place: Path, advice: str) -> Iterator[None]:
    """Raise what the operating system refuses inside the block as UserError; StoreFailed for a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFailed(f"no space is left on the disk of {str(place)!r}: free some and try again") from error
        raise UserError(f"{str(place)!r} cannot be written ({error.strerror}): {advice}") from error
