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


class HeldOut:
    """Mean loss of a model over `count` held-out sequences, spread evenly: in nats per token, without dropout.

    They are read at the first evaluation and kept on the CPU, 8 bytes a token.
    """

    def __init__(self, sequences: TokenSequences, count: int, setting: Setting) -> None:
        if sequences.available < 1:
            raise CorpusError(
                f"held-out corpus {sequences.corpus.name!r} has {sequences.corpus.tokens:,} tokens, too few "
                f"for one sequence of {sequences.context:,}: give more, or leave held_out out"
            )
        self._sequences = sequences
        self._chosen = spread(sequences.available, count)
        self._setting = setting
        self._batch: Tensor | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Evaluate; blocks until the device is done. The model is left in the mode that it was in."""
        training = model.training
        model.eval()
        chunks = torch.split(self._read(), self._setting.micro_batch)
        total = sum(self._loss(model, chunk) * len(chunk) for chunk in chunks)
        model.train(training)
        return total / len(self._chosen)

    def _read(self) -> Tensor:
        if self._batch is None:
            self._batch = torch.cat([self._sequences(start, 1) for start in self._chosen])
        return self._batch

    def _loss(self, model: nn.Module, chunk: Tensor) -> float:
        chunk = chunk.to(self._setting.device)
        with autocast(self._setting.device, self._setting.autocast):
            return float(model(chunk[:, :-1], chunk[:, 1:]))


def spread(available: int, count: int) -> list[int]:
    """Return `count` numbers below `available`, or all if there are fewer, as evenly spaced as can be."""
    chosen = min(count, available)
    return [number * available // chosen for number in range(chosen)]
