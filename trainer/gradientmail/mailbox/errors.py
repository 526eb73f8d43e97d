"""The mailbox's errors. Only MailboxUnavailable means "try again"."""


class MailboxError(Exception):
    """Any failure of the store behind a mailbox."""


class MailboxUnavailable(MailboxError):
    """The store did not answer, or answered that it could not serve now: try again.

    A write that ends in this error may have landed all the same.
    """


class MailboxMisconfigured(MailboxError):
    """Trying again will not help; the message says what to fix."""


class MailboxNotFound(MailboxMisconfigured):
    """The bucket or folder does not exist."""


class MailboxDenied(MailboxMisconfigured):
    """The credentials are missing, wrong, or lack a permission."""


class MailboxUnsuitable(MailboxMisconfigured):
    """The store lacks something that a mailbox is built on: conditional writes, or hard links."""


class InvalidKey(ValueError):
    """A key that some store could not hold."""
