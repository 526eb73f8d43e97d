"""What the trainer's tests share: one thread, and a maker of token files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gradientmail.training.data.shards import header

MakeShards = Callable[..., Path]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_shards(tmp_path: Path) -> MakeShards:
    """Write tokens 0, 1, 2, … to shards of these lengths; return the folder."""

    def make(*lengths: int, headers: bool = True, below: int = 65_536) -> Path:
        folder = tmp_path / "shards"
        folder.mkdir()
        start = 0
        for number, length in enumerate(lengths):
            tokens = (np.arange(start, start + length) % below).astype("<u2").tobytes()
            (folder / f"{number:06d}.bin").write_bytes((header(length) if headers else b"") + tokens)
            start += length
        return folder

    return make
