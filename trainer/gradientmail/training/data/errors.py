"""What can be wrong with a corpus: a UserError where the user has to act, CorpusUnavailable where storage failed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gradientmail.exits import StoreFailed, UserError
from gradientmail.mailbox import MailboxUnavailable

REFUSED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}
"""What the operating system says of a path that the user has to change."""


class CorpusError(UserError):
    """A corpus that cannot be used; trying again will not help."""


class CorpusUnavailable(MailboxUnavailable):
    """The store that holds the corpus did not answer properly: try again."""


@contextmanager
def told(name: str, action: str = "read") -> Iterator[None]:
    """Turn the operating system's errors about file `name` into sentences."""
    try:
        yield
    except FileNotFoundError:
        raise CorpusError(f"token file {name!r} does not exist: check the path in the task's arguments") from None
    except OSError as error:
        if error.errno in REFUSED:
            raise CorpusError(f"{name!r} could not be {action}: {error.strerror}") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFailed(f"no space is left on the disk of {name!r}: free some and try again") from None
        raise CorpusUnavailable(f"{name!r} could not be {action}: {error.strerror or error}") from error
