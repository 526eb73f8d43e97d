"""Writes receipts of consumed units off the training thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from gradientmail.layout import receipt_key
from gradientmail.mailbox import Mailbox, MailboxError
from gradientmail.patterns.retrying import Patience, Stopped
from gradientmail.progress import Receipt

logger = logging.getLogger(__name__)


class ReceiptWriter:
    """A thread that creates `consumed/{identifier}` for each unit handed to it.

    While the store is unavailable receipts wait in memory. After `close`, the thread has
    `flush_seconds` for what is due; what it could not write is logged and stays `pending`.
    A unit that has a receipt already keeps it, and counts as `written`.
    """

    def __init__(self, mailbox: Mailbox, *, flush_seconds: float, written: Callable[[str], None]) -> None:
        self._mailbox = mailbox
        self._tell = written
        self._due: queue.SimpleQueue[tuple[str, Receipt] | None] = queue.SimpleQueue()
        self._late = threading.Event()
        self._flush_seconds = flush_seconds
        self._patience = Patience(float("inf"), self._late.wait)
        self._thread = threading.Thread(target=self._run, name="shared-queue-receipts", daemon=True)
        self.requests = 0
        self.written = 0
        """Units that have their receipt. Counted by the thread alone, as `_due_units` by the caller's."""
        self._due_units = 0

    @property
    def pending(self) -> int:
        """Units whose receipt is due and not written."""
        return self._due_units - self.written

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, identifier: str, receipt: Receipt) -> None:
        """Hand over a receipt; never blocks."""
        self._due_units += 1
        self._due.put((identifier, receipt))

    def close(self) -> None:
        """Block until everything is written, or for `flush_seconds` if the store does not answer."""
        self._due.put(None)
        self._thread.join(self._flush_seconds)
        self._late.set()
        self._thread.join()
        if self.pending:
            logger.warning("%d receipts could not be written: these units will be counted as lost", self.pending)

    def _run(self) -> None:
        while (due := self._due.get()) is not None:
            try:
                self._write(*due)
            except Stopped:
                return
            except MailboxError as error:
                logger.warning("the receipt of unit %s could not be written: %s", due[0], error)
            except Exception:
                # The receipts after this one are due all the same.
                logger.exception("the receipt of unit %s met an unforeseen error", due[0])

    def _write(self, identifier: str, receipt: Receipt) -> None:
        self._patience.call(lambda: self._put(identifier, receipt))
        self.written += 1
        self._tell(identifier)

    def _put(self, identifier: str, receipt: Receipt) -> None:
        self.requests += 1
        self._mailbox.put_if_absent(receipt_key(identifier), receipt.to_json().encode())
