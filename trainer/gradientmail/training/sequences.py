"""Sequences of a corpus as tensors, and the loss over held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gradientmail.training.data.corpus import Corpus
from gradientmail.training.data.errors import CorpusError
from gradientmail.training.data.shards import TOKEN_BYTES
from gradientmail.training.loop import autocast
from gradientmail.training.task import Setting

WINDOW_BYTES = 4 << 20
"""Tokens among which sequences are shuffled. On S3 a window has to fit into the blocks that are kept."""


@dataclass(frozen=True)
class TokenSequences:
    """Reads a corpus cut into sequences; the last target of each is the first input of the one after it.

    seed: draws the order in which they are read, the same on every node: shuffled within windows of WINDOW_BYTES,
        one window after the other, each sequence once. None: sequence i is tokens [i * context, (i + 1) * context].
    """

    corpus: Corpus
    context: int
    seed: int | None = None

    @property
    def available(self) -> int:
        """Number of whole sequences in the corpus."""
        return max(0, self.corpus.tokens - 1) // self.context

    def __call__(self, start: int, count: int) -> Tensor:
        """Return an int64 tensor of shape (count, context + 1). Blocks; raises CorpusError or MailboxUnavailable."""
        if self.seed is None:
            tokens = self.corpus.read(start * self.context, count * self.context + 1)
            row = torch.from_numpy(tokens.astype(np.int64))
            return row.unfold(0, self.context + 1, self.context).contiguous()
        places = [self._place(number, self.seed) for number in range(start, start + count)]
        rows = [self.corpus.read(place * self.context, self.context + 1) for place in places]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def _place(self, number: int, seed: int) -> int:
        """Return which sequence of the corpus is read as number `number`; one beyond the last is left where it is."""
        window = max(1, WINDOW_BYTES // (self.context * TOKEN_BYTES))
        first = number - number % window
        length = min(window, self.available - first)
        return first + int(shuffled(seed, first, length)[number - first]) if number < self.available else number


@lru_cache(maxsize=4)
def shuffled(seed: int, first: int, length: int) -> npt.NDArray[np.int64]:
    """Return 0 to length - 1 in an order drawn from the seed and the window's first sequence.

    By the one generator of numpy whose numbers no release may change: nodes with different versions must agree.
    """
    words = [seed & 0xFFFFFFFF, seed >> 32, first & 0xFFFFFFFF, first >> 32]
    return np.random.RandomState(words).permutation(length)


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
