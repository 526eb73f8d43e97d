"""The formats of token files: pure functions of a file's first bytes and its size.

Two formats are understood, both little-endian uint16 tokens:

- nanoGPT's `.bin`: nothing but tokens;
- modded-nanogpt's and llm.c's shards: a header of 256 int32 (magic number 20240520, version 1,
  number of tokens, zeros), then the tokens.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from gradientmail.training.data.errors import CorpusError

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 1024
TOKEN_BYTES = 2

Format = Literal["auto", "bin", "shards"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a file's tokens lie: `tokens` of them, from byte `offset` on."""

    offset: int
    tokens: int


def header(tokens: int) -> bytes:
    """Return the header of a shard with that many tokens."""
    return struct.pack("<3i", MAGIC, VERSION, tokens).ljust(HEADER_BYTES, b"\0")


def layout(name: str, head: bytes, size: int, form: Format = "auto") -> Layout:
    """Return where the tokens of a file lie, given its first 1,024 bytes (or all, if it is smaller) and its size.

    Raises CorpusError, naming the file and what is wrong with it.
    """
    if size == 0:
        raise CorpusError(f"token file {name!r} is empty")
    if form != "bin" and _has_header(head, form):
        return _shard(name, head, size)
    if form == "shards":
        raise CorpusError(f"token file {name!r} has {size} bytes, too few for the header of a shard ({HEADER_BYTES})")
    return _headerless(name, size)


def steps_served(tokens: int, *, batch: int, context: int) -> int:
    """Return the number of dataset steps that a corpus serves: its last token is a target only."""
    return max(0, tokens - 1) // context // batch


def _has_header(head: bytes, form: Format) -> bool:
    if len(head) < HEADER_BYTES:
        return False
    if form == "shards" or _magic(head) == MAGIC:
        return True
    # Five hundred zero tokens after three numbers are a header of some kind, not text.
    return not any(head[12:])


def _magic(head: bytes) -> int:
    return int.from_bytes(head[:4], "little", signed=True)


def _shard(name: str, head: bytes, size: int) -> Layout:
    magic, version, tokens = struct.unpack_from("<3i", head)
    if magic != MAGIC:
        raise CorpusError(
            f"token file {name!r} starts with magic number {magic}, but shards of uint16 tokens have {MAGIC}: "
            "convert it, or set format to 'bin' if it has no header"
        )
    if version != VERSION:
        raise CorpusError(f"token file {name!r} has shard version {version}, but only version {VERSION} is understood")
    room = (size - HEADER_BYTES) // TOKEN_BYTES
    if tokens != room:
        raise CorpusError(
            f"token file {name!r} says that it holds {tokens:,} tokens, but its size is that of {room:,}: "
            "it is truncated or damaged; fetch it again"
        )
    return Layout(HEADER_BYTES, tokens)


def _headerless(name: str, size: int) -> Layout:
    if size % TOKEN_BYTES:
        raise CorpusError(f"token file {name!r} has {size:,} bytes, an odd number: it does not hold uint16 tokens")
    return Layout(0, size // TOKEN_BYTES)
