"""The session of a node, as the manifest asks for it."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from gradientmail.exchange import Session, Solo, TrainingSession
from gradientmail.exits import UserError
from gradientmail.mailbox import Mailbox
from gradientmail.run import GradientRun

MakeSession = Callable[[nn.Module, Mailbox, str, GradientRun], TrainingSession]
"""Makes a node's session from its model, the run's mailbox, its learner ID and the manifest."""


def session_for(model: nn.Module, mailbox: Mailbox, learner_id: str, manifest: GradientRun) -> TrainingSession:
    """Return the session that the manifest asks for. Raises UserError for a model that cannot be exchanged."""
    trainer, exchange = manifest.spec.trainer, manifest.spec.trainer.exchange
    if exchange.solo:
        return Solo()
    try:
        return Session(
            model,
            mailbox=mailbox,
            learner_id=learner_id,
            sync_every=exchange.sync_every,
            fragments=exchange.fragments,
            outer_lr=exchange.outer_lr,
            outer_momentum=exchange.outer_momentum,
            transfer_dtype=exchange.transfer_dtype.lower(),
            patience_seconds=exchange.patience_seconds,
            takeover_seconds=exchange.takeover_seconds,
            outage_seconds=trainer.outage_seconds,
            flush_seconds=exchange.flush_seconds,
            poll_seconds=exchange.poll_seconds,
        )
    except ValueError as error:
        raise UserError(f"{error}; spec.trainer.exchange.mode: Solo trains without an exchange") from None
