"""A node's own parameters as an object in the mailbox."""

from __future__ import annotations

from torch import nn

from gradientmail.exchange.assembling import model_bytes
from gradientmail.layout import model_key
from gradientmail.mailbox import Mailbox


def write_model(mailbox: Mailbox, learner: str, model: nn.Module) -> None:
    """Write `model/{learner}.safetensors`, in the form of the run's final model. Raises the mailbox's errors."""
    mailbox.put_if_absent(model_key(learner), model_bytes(model, {"format": "pt"}))
