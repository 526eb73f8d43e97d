"""A corpus: token files one after the other, read by position."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from gradientmail.mailbox import S3Options
from gradientmail.patterns.retrying import Patience
from gradientmail.training.data.errors import CorpusError
from gradientmail.training.data.files import Source, find_local
from gradientmail.training.data.s3 import find_s3
from gradientmail.training.data.shards import HEADER_BYTES, TOKEN_BYTES, Format, Layout, layout

Tokens = npt.NDArray[np.uint16]

HEADERS_AT_ONCE = 8
OUTAGE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Shard:
    """A token file and where its tokens lie."""

    source: Source
    layout: Layout

    def read(self, start: int, count: int) -> Tokens:
        """Return `count` tokens from position `start` of this file on."""
        offset = self.layout.offset + start * TOKEN_BYTES
        return np.frombuffer(self.source.read(offset, count * TOKEN_BYTES), dtype="<u2")


class Corpus:
    """The tokens of some files as one row. Holds no tokens in memory; safe to use from any thread."""

    def __init__(self, name: str, shards: Sequence[Shard], vocabulary: int) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self._shards = shards
        self._ends = list(accumulate(shard.layout.tokens for shard in shards))

    @property
    def tokens(self) -> int:
        """Number of tokens in all files."""
        return self._ends[-1]

    def read(self, start: int, count: int) -> Tokens:
        """Return uint16 tokens [start, start + count), over as many files as they span.

        Blocks on the disk or network. Raises CorpusError if there are fewer, if one is not below
        the vocabulary's size, or if a file has gone; MailboxUnavailable if the store does not answer.
        """
        if start < 0 or start + count > self.tokens:
            raise CorpusError(
                f"tokens {start:,} to {start + count:,} of corpus {self.name!r} were asked for, "
                f"but it has {self.tokens:,}"
            )
        parts = [np.empty(0, np.uint16)]
        index = bisect.bisect_right(self._ends, start)
        while count > 0:
            shard, end = self._shards[index], self._ends[index]
            first = start - (end - shard.layout.tokens)
            part = shard.read(first, min(count, end - start))
            self._check(part, shard, first)
            parts.append(part)
            start, count, index = start + len(part), count - len(part), index + 1
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def _check(self, tokens: Tokens, shard: Shard, first: int) -> None:
        if tokens.size and tokens.max() >= self.vocabulary:
            where = int(np.argmax(tokens >= self.vocabulary))
            raise CorpusError(
                f"token file {shard.source.name!r} has token {int(tokens[where])} at position {first + where:,}, but "
                f"the vocabulary has {self.vocabulary} tokens: set the vocabulary to that of the tokenizer"
            )


def open_corpus(
    where: str,
    *,
    vocabulary: int,
    form: Format = "auto",
    s3: S3Options | None = None,
    patience: Patience | None = None,
) -> Corpus:
    """Open token files: a path, a folder of `*.bin` or a pattern, local or `s3://`. Files are taken in order of name.

    Reads the first kilobyte of each file. Raises CorpusError or MailboxUnavailable, naming the file.
    """
    sources: Sequence[Source] = (
        find_s3(where, s3 or S3Options(), patience or Patience(OUTAGE_SECONDS, threading.Event().wait))
        if where.startswith("s3://")
        else find_local(where)
    )
    with ThreadPoolExecutor(HEADERS_AT_ONCE, "headers") as pool:
        shards = list(pool.map(lambda source: _shard(source, form), sources))
    return Corpus(where, [shard for shard in shards if shard.layout.tokens], vocabulary)


def _shard(source: Source, form: Format) -> Shard:
    return Shard(source, layout(source.name, source.head(HEADER_BYTES), source.size, form))
