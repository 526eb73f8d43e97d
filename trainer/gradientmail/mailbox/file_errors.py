"""What an operating system's error means for a mailbox, in one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradientmail.mailbox.errors import (
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxUnavailable,
    MailboxUnsuitable,
)

ADVICE: dict[int, tuple[type[MailboxError], str]] = {
    errno.ENOSPC: (MailboxUnavailable, "no space is left on the disk; free some and try again"),
    errno.EDQUOT: (MailboxUnavailable, "the disk quota is used up; free some space and try again"),
    errno.EMFILE: (MailboxUnavailable, "this process has too many open files; raise `ulimit -n` or try again"),
    errno.ENFILE: (MailboxUnavailable, "this machine has too many open files; try again"),
    errno.ESTALE: (MailboxUnavailable, "the network mount is stale; try again or mount it anew"),
    errno.EACCES: (MailboxDenied, "permission denied; give this user read and write access to the folder"),
    errno.EPERM: (MailboxDenied, "the file system does not permit it; check the folder's owner and mount options"),
    errno.EROFS: (MailboxMisconfigured, "the file system is read-only; choose a folder that can be written"),
    errno.EFBIG: (
        MailboxMisconfigured,
        "the file is larger than the file system or `ulimit -f` allows; raise the limit",
    ),
    errno.ENAMETOOLONG: (MailboxMisconfigured, "the path is too long; choose a folder with a shorter path"),
    errno.ELOOP: (MailboxMisconfigured, "the path's symbolic links form a loop; choose another folder"),
    errno.ENOTDIR: (MailboxMisconfigured, "a part of the path is a file, not a folder; choose another folder"),
    errno.EISDIR: (MailboxMisconfigured, "something else made a folder there; choose an empty folder"),
    errno.EMLINK: (MailboxUnsuitable, "the file system has no hard links; choose a folder on another"),
    errno.ENOTSUP: (MailboxUnsuitable, "the file system has no hard links; choose a folder on another"),
    errno.ENOSYS: (MailboxUnsuitable, "the file system has no hard links; choose a folder on another"),
}


def explained(error: OSError, path: Path, action: str) -> MailboxError:
    """Return the mailbox's error for a failure to `action` (a verb) the path."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    kind, advice = ADVICE.get(error.errno or 0, (MailboxUnavailable, f"{reason}; try again"))
    return kind(f"cannot {action} {path}: {advice}")


@contextmanager
def translated(path: Path, action: str) -> Iterator[None]:
    """Raise any operating system's error inside the block as a mailbox's error."""
    try:
        yield
    except OSError as error:
        raise explained(error, path, action) from error
