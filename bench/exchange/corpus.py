"""Text of Python's standard library as bytes: a corpus that every machine has."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

BLOCK = 4096
HELD_OUT_EVERY = 16
STRIDE = 7919
"""Odd and prime: consecutive sequences lie far apart."""


def _text(limit: int) -> np.ndarray:
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in folder.glob("**/*.py") if "site-packages" not in path.parts)
    data = b"".join(path.read_bytes() for path in files)[:limit]
    return np.frombuffer(data, dtype=np.uint8)


class Corpus:
    """Bytes in blocks; every sixteenth block is held out."""

    def __init__(self, context: int, limit: int = 12_000_000) -> None:
        data = _text(limit)
        blocks = data[: len(data) // BLOCK * BLOCK].reshape(-1, BLOCK)
        held = np.arange(len(blocks)) % HELD_OUT_EVERY == 0
        self._context = context
        self._train = torch.from_numpy(blocks[~held].reshape(-1).astype(np.int64))
        self._held = torch.from_numpy(blocks[held].reshape(-1).astype(np.int64))

    def sequences(self, start: int, count: int, seed: int) -> Tensor:
        """Return `count` training sequences from number `start` on; another seed, another order."""
        return _cut(self._train, start + seed * 10_000_019, count, self._context)

    def held_out(self, count: int) -> Tensor:
        """Return the same held-out sequences every time."""
        return _cut(self._held, 0, count, self._context)


def _cut(data: Tensor, start: int, count: int, context: int) -> Tensor:
    room = len(data) - context - 1
    starts = (torch.arange(start, start + count) * STRIDE) % room
    return data[starts[:, None] + torch.arange(context + 1)]
