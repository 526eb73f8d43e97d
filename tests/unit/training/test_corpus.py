"""Reading tokens and sequences by position, over shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.training.data.corpus import Corpus, Shard, open_corpus
from gradientmail.training.data.errors import CorpusError
from gradientmail.training.data.files import find_local
from gradientmail.training.data.shards import TOKEN_BYTES, Layout, steps_served
from gradientmail.training.sequences import TokenSequences, shuffled, spread
from tests.unit.training.conftest import MakeShards


class Held:
    """A source in memory."""

    def __init__(self, tokens: np.ndarray) -> None:
        self.name = "held"
        self.data = tokens.astype("<u2").tobytes()
        self.size = len(self.data)

    def head(self, length: int) -> bytes:
        return self.data[:length]

    def read(self, offset: int, length: int) -> bytes:
        assert 0 < length <= self.size - offset
        return self.data[offset : offset + length]


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), data=st.data())
def test_any_span_equals_the_slice_of_all_tokens(lengths: list[int], data: st.DataObject) -> None:
    tokens = np.arange(sum(lengths))
    parts = np.split(tokens, np.cumsum(lengths)[:-1])
    corpus = Corpus("held", [Shard(Held(part), Layout(0, len(part))) for part in parts], vocabulary=65_536)
    start = data.draw(st.integers(0, len(tokens)))
    count = data.draw(st.integers(0, len(tokens) - start))
    assert corpus.read(start, count).tolist() == tokens[start : start + count].tolist()


@pytest.mark.parametrize("headers", [True, False])
def test_files_of_a_folder_are_one_row_in_order_of_name(make_shards: MakeShards, headers: bool) -> None:
    corpus = open_corpus(str(make_shards(700, 1, 300, headers=headers)), vocabulary=65_536)
    assert corpus.tokens == 1001
    assert corpus.read(698, 5).tolist() == [698, 699, 700, 701, 702]


def test_one_file_and_a_pattern(make_shards: MakeShards) -> None:
    folder = make_shards(10, 20, 30)
    assert open_corpus(str(folder / "000001.bin"), vocabulary=100).tokens == 20
    assert open_corpus(str(folder / "00000[12].bin"), vocabulary=100).tokens == 50


def test_sequences_share_one_token_with_the_next(make_shards: MakeShards) -> None:
    sequences = TokenSequences(open_corpus(str(make_shards(7, 10)), vocabulary=17), context=4)
    assert sequences.available == 4
    tensor = sequences(1, 2)
    assert tensor.dtype is torch.int64
    assert tensor.tolist() == [[4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]
    assert tensor.is_contiguous()


@pytest.mark.parametrize(("available", "window"), [(1, 4), (4, 4), (10, 4), (11, 4), (3, 1)])
def test_shuffled_sequences_are_those_of_each_window_in_its_order(
    monkeypatch: pytest.MonkeyPatch, available: int, window: int
) -> None:
    monkeypatch.setattr("gradientmail.training.sequences.WINDOW_BYTES", window * 4 * TOKEN_BYTES)
    tokens = np.arange(available * 4 + 1)
    corpus = Corpus("held", [Shard(Held(tokens), Layout(0, len(tokens)))], vocabulary=65_536)
    plain, sequences = TokenSequences(corpus, 4), TokenSequences(corpus, 4, seed=1)
    whole = sequences(0, available)
    assert whole.dtype is torch.int64
    assert whole.shape == (available, 5)
    assert [sequences(number, 1).tolist() for number in range(available)] == [[row] for row in whole.tolist()]
    for first in range(0, available, window):
        length = min(window, available - first)
        assert torch.equal(whole[first : first + length], plain(first, length)[shuffled(1, first, length)])
    with pytest.raises(CorpusError, match=r"were asked for, but it has"):
        sequences(available, 1)


def test_order_is_drawn_from_the_seed_and_the_window_and_never_changes() -> None:
    """Nodes with other releases must read the same: these orders are numpy's MT19937 for good."""
    assert shuffled(0, 0, 8).tolist() == [7, 2, 4, 0, 5, 3, 1, 6]
    assert shuffled(7, 16, 8).tolist() == [7, 5, 0, 2, 4, 1, 3, 6]
    assert shuffled(2**31 - 1, 2**33, 5).tolist() == [1, 4, 2, 3, 0]


def test_last_sequence_ends_with_the_last_token(make_shards: MakeShards) -> None:
    sequences = TokenSequences(open_corpus(str(make_shards(9)), vocabulary=9), context=4)
    assert sequences(0, 2).tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
    with pytest.raises(CorpusError, match=r"tokens 8 to 13 of corpus .* were asked for, but it has 9"):
        sequences(2, 1)


def test_token_beyond_the_vocabulary_is_named_with_its_place(make_shards: MakeShards) -> None:
    corpus = open_corpus(str(make_shards(50, 60)), vocabulary=100)
    assert corpus.read(40, 60).size == 60
    with pytest.raises(CorpusError) as error:
        corpus.read(40, 70)
    assert str(error.value).endswith(
        "000001.bin' has token 100 at position 50, but the vocabulary has 100 tokens: "
        "set the vocabulary to that of the tokenizer"
    )


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("none.bin", "token file 'none.bin' does not exist: check the path in the task's arguments"),
        ("none*.bin", "'none*.bin' matches no file: give a token file, a folder of *.bin files or a pattern"),
        (".", "'.' has no *.bin files: give a token file, a folder of *.bin files or a pattern"),
    ],
)
def test_missing_corpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError) as error:
        open_corpus(where, vocabulary=10)
    assert str(error.value) == sentence


def test_file_that_shrinks_during_the_run_is_named(make_shards: MakeShards) -> None:
    folder = make_shards(1000)
    corpus = open_corpus(str(folder), vocabulary=1000)
    (folder / "000000.bin").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"000000.bin' has become shorter than its 3,024 bytes"):
        corpus.read(0, 10)


def test_memory_stays_flat(make_shards: MakeShards) -> None:
    corpus = open_corpus(str(make_shards(2_000_000, 2_000_000)), vocabulary=65_536)
    tracemalloc.start()
    for start in range(0, 4_000_000, 10_000):
        corpus.read(start, 10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("tokens", "batch", "context", "steps"), [(0, 1, 1, 0), (8, 2, 4, 0), (9, 2, 4, 1), (16, 2, 4, 1), (17, 2, 4, 2)]
)
def test_steps_that_a_corpus_serves(tokens: int, batch: int, context: int, steps: int) -> None:
    assert steps_served(tokens, batch=batch, context=context) == steps


@pytest.mark.parametrize(
    ("available", "count", "chosen"),
    [(10, 3, [0, 3, 6]), (100, 4, [0, 25, 50, 75]), (2, 5, [0, 1]), (7, 7, [*range(7)])],
)
def test_held_out_sequences_are_spread(available: int, count: int, chosen: list[int]) -> None:
    assert spread(available, count) == chosen


def test_names_are_sorted(tmp_path: Path) -> None:
    for name in ("b.bin", "a.bin", "c.txt"):
        (tmp_path / name).write_bytes(b"\0\0")
    assert [Path(source.name).name for source in find_local(str(tmp_path))] == ["a.bin", "b.bin"]
