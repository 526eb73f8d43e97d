"""A node's own parameters as an object in the mailbox."""

from __future__ import annotations

from safetensors.torch import save
from torch import nn

from gradientmail.layout import model_key
from gradientmail.mailbox import Mailbox


def model_bytes(model: nn.Module) -> bytes:
    """Return the model's parameters and lasting buffers as safetensors; shared ones once, by their first name."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach().cpu().contiguous()
    return save(tensors)


def write_model(mailbox: Mailbox, learner: str, model: nn.Module) -> None:
    """Write `model/{learner}.safetensors`. Raises the mailbox's errors."""
    mailbox.put_if_absent(model_key(learner), model_bytes(model))
