"""GradientMail: train one model on unequal GPUs that share nothing but an object store.

The main path, from a data grid to a training loop::

    from gradientmail import grid, open_mailbox
    from gradientmail.patterns.shared_queue import shared_queue

    units = grid(steps=4000, unit_steps=20, lanes=4)
    box = open_mailbox("s3://bucket/runs/first")
    with shared_queue(units, mailbox=box, learner_id="node-0", load=load_unit) as batches:
        for step, batch in batches:
            ...

Importing this package never imports torch.
"""

from gradientmail.mailbox import (
    Mailbox,
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxNotFound,
    MailboxUnavailable,
    open_mailbox,
)
from gradientmail.units import Unit, first_lane, grid

__all__ = [
    "Mailbox",
    "MailboxDenied",
    "MailboxError",
    "MailboxMisconfigured",
    "MailboxNotFound",
    "MailboxUnavailable",
    "Unit",
    "first_lane",
    "grid",
    "open_mailbox",
]
