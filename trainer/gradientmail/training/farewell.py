"""What a node writes when it leaves: its farewell and its termination message. Needs no torch."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from gradientmail.layout import left_key
from gradientmail.mailbox import Mailbox
from gradientmail.progress import NodeProgress

MESSAGE_BYTES = 4096
"""What Kubernetes keeps of a termination message."""

logger = logging.getLogger(__name__)


def termination_message(progress: NodeProgress) -> bytes:
    """Return the progress as JSON of at most MESSAGE_BYTES; if need be without versions, and with a shorter message."""
    text = progress.to_json().encode()
    if len(text) > MESSAGE_BYTES and progress.exchange:
        progress = replace(progress, exchange=replace(progress.exchange, versions=()))
        text = progress.to_json().encode()
    while len(text) > MESSAGE_BYTES and progress.message:
        kept = len(progress.message) - max(2, (len(text) - MESSAGE_BYTES) // 6)
        progress = replace(progress, message=f"{progress.message[: max(0, kept)]}…" if kept > 0 else "")
        text = progress.to_json().encode()
    return text


def write_termination_message(path: Path | None, progress: NodeProgress) -> None:
    """Write the message where Kubernetes looks for it. A path that cannot be written is logged, no more."""
    if path is None:
        return
    try:
        path.write_bytes(termination_message(progress))
    except OSError as error:
        logger.warning("the termination message could not be written to %s: %s", path, error.strerror)


def write_left(mailbox: Mailbox, learner: str, progress: NodeProgress) -> None:
    """Write `left/{learner}`, the node's farewell: its last progress. Raises the mailbox's errors."""
    mailbox.put_if_absent(left_key(learner), progress.to_json().encode())
