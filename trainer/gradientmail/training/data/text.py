"""From a folder of text to token files, with a tokenizer of 256 byte values and a document separator.

Everything is a pure function of the documents' names and contents: the same folder gives the
same files anywhere. Memory stays at a few megabytes whatever the folder's size. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from gradientmail.exits import UserError
from gradientmail.training.data.errors import told
from gradientmail.training.data.shards import TOKEN_BYTES, header

SEPARATOR = 256
VOCABULARY = 257
PIECE_BYTES = 1 << 20
RECORD = "corpus.json"


@dataclass(frozen=True)
class Made:
    """What was made: tokens and files of each part."""

    documents: int
    skipped: int
    """Files left out because they are empty or not text."""
    tokens: int
    held_out_tokens: int
    vocabulary: int = VOCABULARY
    separator: int = SEPARATOR
    """Stands before each document."""


@dataclass(frozen=True)
class Document:
    """A file of text: `name` is its path below the folder that was given."""

    name: str
    path: Path
    size: int


@dataclass(frozen=True)
class Wish:
    """What to make: where, and how the tokens are parted."""

    out: Path
    held_out: float = 0.05
    shard_tokens: int = 100_000_000
    force: bool = False


def make_corpus(sources: Iterable[Path], pattern: str, wish: Wish) -> Made:
    """Write `train/` and `held-out/` shards and a record below `wish.out`, which appears whole or not at all.

    Raises UserError for what the user has to change, StoreFailed if the disk is full.
    """
    _check_out(wish)
    found = [document for source in sources for document in _documents(source, pattern, wish.out)]
    documents = [document for document in found if _is_text(document)]
    if not documents:
        raise UserError(f"no text was found that matches {pattern!r}: check the folders and --glob")
    with told(str(wish.out), "written"):
        wish.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".corpus-", dir=wish.out.parent) as folder:
            made = _write(documents, Path(folder) / "new", wish, skipped=len(found) - len(documents))
            _put_in_place(Path(folder), wish.out)
    return made


def shuffled(documents: Iterable[Document]) -> list[Document]:
    """Return documents in an order that depends on their names alone and mixes the folders."""
    return sorted(documents, key=lambda document: (hashlib.sha256(document.name.encode()).digest(), document.name))


def encoded(data: bytes) -> bytes:
    """Return each byte as a little-endian uint16 token."""
    tokens = bytearray(TOKEN_BYTES * len(data))
    tokens[::TOKEN_BYTES] = data
    return bytes(tokens)


class ShardWriter:
    """Writes tokens to `000000.bin`, `000001.bin`, … of at most `shard_tokens` each. A context manager."""

    def __init__(self, folder: Path, shard_tokens: int) -> None:
        folder.mkdir(parents=True)
        self.tokens = 0
        self._folder = folder
        self._room = shard_tokens
        self._file: BinaryIO | None = None
        self._written = 0
        self._number = 0

    def write(self, tokens: bytes) -> None:
        """Append little-endian uint16 tokens."""
        while tokens:
            file = self._file or self._open()
            part = tokens[: TOKEN_BYTES * (self._room - self._written)]
            file.write(part)
            self._written += len(part) // TOKEN_BYTES
            self.tokens += len(part) // TOKEN_BYTES
            tokens = tokens[len(part) :]
            if self._written == self._room:
                self._close()

    def _open(self) -> BinaryIO:
        self._file = (self._folder / f"{self._number:06d}.bin").open("wb")
        self._file.write(header(0))
        self._number += 1
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                file.write(header(self._written))
            self._file, self._written = None, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _check_out(wish: Wish) -> None:
    if not wish.out.exists():
        return
    if not wish.force:
        raise UserError(f"{str(wish.out)!r} exists already: choose another folder, or --force to replace it")
    if not (wish.out / RECORD).is_file():
        raise UserError(
            f"{str(wish.out)!r} was not made by this command, so --force does not replace it: choose another"
        )


def _documents(source: Path, pattern: str, out: Path) -> list[Document]:
    if source.is_file():
        return [Document(source.name, source, source.stat().st_size)]
    if not source.is_dir():
        raise UserError(f"{str(source)!r} is neither a folder nor a file: give folders or files of text")
    return [
        Document(path.relative_to(source).as_posix(), path, path.stat().st_size)
        for path in source.rglob(pattern)
        if path.is_file() and not path.is_relative_to(out)
    ]


def _is_text(document: Document) -> bool:
    with told(str(document.path)), document.path.open("rb") as file:
        start = file.read(8192)
    return bool(start) and b"\0" not in start


def _pieces(documents: Iterable[Document], size: int) -> Iterator[bytes]:
    for document in documents:
        with told(str(document.path)), document.path.open("rb") as file:
            lead = SEPARATOR.to_bytes(TOKEN_BYTES, "little")
            while data := file.read(size):
                yield lead + encoded(data)
                lead = b""


def _write(documents: list[Document], folder: Path, wish: Wish, *, skipped: int) -> Made:
    total = sum(document.size for document in documents)
    # So small a folder that the share is less than a piece is cut finer, or nothing would be held out.
    size = max(1, min(PIECE_BYTES, int(total * wish.held_out) or PIECE_BYTES))
    with ExitStack() as stack:
        train = stack.enter_context(ShardWriter(folder / "train", wish.shard_tokens))
        held_out = stack.enter_context(ShardWriter(folder / "held-out", wish.shard_tokens))
        owed = 0.0
        for piece in _pieces(shuffled(documents), size):
            owed += wish.held_out * len(piece)
            chosen = owed >= len(piece)
            owed -= len(piece) if chosen else 0
            (held_out if chosen else train).write(piece)
    made = Made(len(documents), skipped, train.tokens, held_out.tokens)
    (folder / RECORD).write_text(json.dumps(asdict(made), indent=2) + "\n")
    return made


def _put_in_place(folder: Path, out: Path) -> None:
    if out.exists():
        out.rename(folder / "old")
    (folder / "new").rename(out)
    shutil.rmtree(folder / "old", ignore_errors=True)
