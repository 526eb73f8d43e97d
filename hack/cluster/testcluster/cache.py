"""Where built programs, images and logs are kept between clusters, and locks that keep two callers apart."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .shell import say


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The tool's cache folder: under ``XDG_CACHE_HOME``, else under ``~/.cache``."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gradientmail" / "cluster"


def content_key(files: Iterable[Path], *words: str) -> str:
    """A short name for what is built from these files and words on this kind of machine."""
    digest = hashlib.sha256()
    for word in (platform.machine(), *words):
        digest.update(word.encode() + b"\0")
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def locked(file: Path, doing: str) -> Iterator[None]:
    """Hold an exclusive lock on ``file``; blocks, and says so, while another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another process is at work on the same; {doing} waits for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
