"""The formats of token files."""

from __future__ import annotations

import struct

import pytest

from gradientmail.training.data.errors import CorpusError
from gradientmail.training.data.shards import Layout, header, layout


def shard(magic: int = 20240520, version: int = 1, tokens: int = 4) -> bytes:
    return struct.pack("<256i", magic, version, tokens, *[0] * 253)


def test_header_is_256_numbers_that_start_with_the_magic_number() -> None:
    assert header(7) == struct.pack("<256i", 20240520, 1, 7, *[0] * 253)


def test_shard_is_known_by_its_magic_number() -> None:
    assert layout("a.bin", shard(), 1024 + 8) == Layout(offset=1024, tokens=4)


def test_anything_else_is_tokens_from_the_first_byte_on() -> None:
    assert layout("a.bin", bytes(range(1, 101)) * 11, 1100) == Layout(offset=0, tokens=550)


def test_small_file_is_tokens() -> None:
    assert layout("a.bin", b"\0\0\1\0", 4) == Layout(offset=0, tokens=2)


def test_format_bin_takes_a_header_for_tokens() -> None:
    assert layout("a.bin", shard(), 1024 + 8, "bin") == Layout(offset=0, tokens=516)


@pytest.mark.parametrize(
    ("head", "size", "form", "sentence"),
    [
        (b"", 0, "auto", "token file 'a.bin' is empty"),
        (b"abc", 3, "auto", "token file 'a.bin' has 3 bytes, an odd number: it does not hold uint16 tokens"),
        (b"ab", 2, "shards", "token file 'a.bin' has 2 bytes, too few for the header of a shard (1024)"),
        (
            shard(magic=20240801),
            1032,
            "auto",
            "token file 'a.bin' starts with magic number 20240801, but shards of uint16 tokens have 20240520: "
            "convert it, or set format to 'bin' if it has no header",
        ),
        (
            b"\1" * 1024,
            1032,
            "shards",
            "token file 'a.bin' starts with magic number 16843009, but shards of uint16 tokens have 20240520: "
            "convert it, or set format to 'bin' if it has no header",
        ),
        (
            shard(version=2),
            1032,
            "auto",
            "token file 'a.bin' has shard version 2, but only version 1 is understood",
        ),
        (
            shard(tokens=5000),
            1032,
            "auto",
            "token file 'a.bin' says that it holds 5,000 tokens, but its size is that of 4: "
            "it is truncated or damaged; fetch it again",
        ),
    ],
)
def test_bad_file_is_named_with_what_is_wrong(head: bytes, size: int, form: str, sentence: str) -> None:
    with pytest.raises(CorpusError) as error:
        layout("a.bin", head, size, form)  # type: ignore[arg-type]
    assert str(error.value) == sentence
