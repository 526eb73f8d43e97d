"""The mailbox: four verbs over immutable objects, the only thing that nodes share.

    open_mailbox("s3://bucket/prefix" | "file:///path" | "memory:")  ->  Mailbox

What can go wrong, as one tree::

    MailboxError
    ├── MailboxUnavailable      the store did not answer properly: try again
    └── MailboxMisconfigured    trying again will not help; the message says what to fix
        ├── MailboxNotFound     the bucket does not exist
        ├── MailboxDenied       the credentials are wrong or lack a permission
        └── MailboxUnsuitable   the store lacks conditional writes or hard links

A key that no store could hold raises InvalidKey, a ValueError.
"""

from gradientmail.mailbox.base import Mailbox, Observer, Operation, Outcome, Request, Store
from gradientmail.mailbox.errors import (
    InvalidKey,
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxNotFound,
    MailboxUnavailable,
    MailboxUnsuitable,
)
from gradientmail.mailbox.keys import check_key
from gradientmail.mailbox.opening import open_mailbox
from gradientmail.mailbox.s3_options import S3Options

__all__ = [
    "InvalidKey",
    "Mailbox",
    "MailboxDenied",
    "MailboxError",
    "MailboxMisconfigured",
    "MailboxNotFound",
    "MailboxUnavailable",
    "MailboxUnsuitable",
    "Observer",
    "Operation",
    "Outcome",
    "Request",
    "S3Options",
    "Store",
    "check_key",
    "open_mailbox",
]
