"""Exit codes of every command, and the errors that carry a sentence for the user instead of a traceback."""

from enum import IntEnum

INSTALL_TORCH = "run `pip install './trainer[torch]'` in GradientMail's repository"


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    FAILED = 1
    """Something unforeseen, or a task's own code, failed: trying again may help."""
    CONFIGURATION = 2
    """The command line, manifest, task, corpus, credentials or mailbox is wrong: trying again will not help."""
    STORE = 3
    """The store did not answer for longer than the run allows, or is full."""
    UNSUITABLE = 4
    """doctor: this store must not hold a shared queue."""
    INCOMPLETE = 5
    """The run ended with units that nobody trained."""
    INTERRUPTED = 130
    """SIGINT: left in good order."""
    TERMINATED = 143
    """SIGTERM: left in good order."""


class UserError(ValueError):
    """A user's mistake: one sentence that names the value, what was expected and what to do."""

    exit = Exit.CONFIGURATION


class PrefixInUse(UserError):
    """The prefix holds another run's objects."""


class StoreFailed(UserError):
    """The store stayed unreachable, or is full."""

    exit = Exit.STORE
