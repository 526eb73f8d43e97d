"""Sequences of a corpus as tensors, and the loss over held-out ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gradientmail.training.data.corpus import Corpus
from gradientmail.training.data.errors import CorpusError
from gradientmail.training.loop import autocast
from gradientmail.training.task import Setting


@dataclass(frozen=True)
class TokenSequences:
    """Reads sequence i as tokens [i * context, (i + 1) * context]: its last target is the first input of the next."""

    corpus: Corpus
    context: int

    @property
    def available(self) -> int:
        """Number of whole sequences in the corpus."""
        return max(0, self.corpus.tokens - 1) // self.context

    def __call__(self, start: int, count: int) -> Tensor:
        """Return an int64 tensor of shape (count, context + 1). Blocks; raises CorpusError or MailboxUnavailable."""
        tokens = self.corpus.read(start * self.context, count * self.context + 1)
        row = torch.from_numpy(tokens.astype(np.int64))
        return row.unfold(0, self.context + 1, self.context).contiguous()


@dataclass(frozen=True)
class HeldOut:
    """Mean loss of a model over the first `count` held-out sequences: in nats per token, without dropout."""

    sequences: TokenSequences
    count: int
    setting: Setting

    def __post_init__(self) -> None:
        if self.sequences.available < 1:
            raise CorpusError(
                f"held-out corpus {self.sequences.corpus.name!r} has {self.sequences.corpus.tokens:,} tokens, too few "
                f"for one sequence of {self.sequences.context:,}: give more, or leave held_out out"
            )

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Evaluate; blocks until the device is done. The model is left in the mode that it was in."""
        training = model.training
        model.eval()
        count = min(self.count, self.sequences.available)
        total = sum(self._loss(model, start, min(self._size, count - start)) for start in range(0, count, self._size))
        model.train(training)
        return total / count

    @property
    def _size(self) -> int:
        return self.setting.micro_batch

    def _loss(self, model: nn.Module, start: int, count: int) -> float:
        batch = self.sequences(start, count).to(self.setting.device)
        with autocast(self.setting.device, self.setting.autocast):
            return float(model(batch[:, :-1], batch[:, 1:])) * count
