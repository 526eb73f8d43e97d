"""Token files on a disk: finding them and reading spans of bytes."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gradientmail.training.data.errors import CorpusError, told


class Source(Protocol):
    """A file of known size that gives spans of its bytes. Safe to use from any thread."""

    @property
    def name(self) -> str:
        """The path or URL, for messages."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def head(self, length: int) -> bytes:
        """Return the first bytes, all of them if there are fewer, and read no more. Blocks and raises as `read`."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes. Blocks; raises CorpusError or MailboxUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on a disk, opened anew for each read: a corpus may have more shards than a process may open files."""

    name: str
    size: int

    def head(self, length: int) -> bytes:
        """See Source."""
        return self.read(0, min(length, self.size))

    def read(self, offset: int, length: int) -> bytes:
        """See Source."""
        with told(self.name), Path(self.name).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), length, offset)
        if len(data) != length:
            raise CorpusError(f"token file {self.name!r} has become shorter than its {self.size:,} bytes")
        return data


def find_local(where: str) -> list[LocalFile]:
    """Return the files named by a path, a folder (all its `*.bin`) or a pattern, sorted by name. Raises CorpusError."""
    path = Path(where).expanduser()
    if path.is_dir():
        names = [str(name) for name in path.glob("*.bin")]
    elif glob.has_magic(where):
        names = [name for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]  # noqa: PTH207 - Path.glob takes no absolute pattern
    else:
        names = [str(path)]
    if not names:
        what = "has no *.bin files" if path.is_dir() else "matches no file"
        raise CorpusError(f"{where!r} {what}: give a token file, a folder of *.bin files or a pattern")
    return [_measured(name) for name in sorted(names)]


def _measured(name: str) -> LocalFile:
    with told(name):
        return LocalFile(name, Path(name).stat().st_size)
