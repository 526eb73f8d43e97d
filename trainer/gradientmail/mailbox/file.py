"""A mailbox in a folder: on a local disk or a shared POSIX file system.

Assumes that the file system creates hard links atomically and only if the name is free, as POSIX
demands and NFS, Lustre, CephFS and every local Linux file system do. It does not assume that a link's answer arrives
(NFS may report an error for a link that it made), nor that a writer lives to tidy up after itself.
FAT, exFAT and most object-store mounts have no hard links: MailboxUnsuitable.

An object appears whole or not at all: its bytes go to a temporary file in the same folder, are
flushed to the disk, and are then linked to the object's name.

Where an object lies. Object storage lets `a` and `a/b` exist side by side; a folder does not. So files and
folders never compete for a name: a file's name always has a dot, one being added at the end of a
segment that has none; a folder's name has no dot or else ends in `~`. Nearly all keys keep their own text:

    units/000000-0.json    units/000000-0.json
    left/node-0            left/node-0.
    a.b/c.d                a.b~/c.d
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from gradientmail.mailbox.base import Observer, Page, Store
from gradientmail.mailbox.errors import MailboxUnavailable
from gradientmail.mailbox.file_errors import translated
from gradientmail.mailbox.keys import problem

TEMPORARY = ".tmp-"

ABANDONED_SECONDS = 24 * 3600.0
"""A temporary file older than this belongs to a writer that was killed. If the writer lives after all, its
write fails cleanly: the link has nothing to link."""

CREATE_ATTEMPTS = 8
"""Between the making of an object's folder and the object, another process may remove the empty folder."""


class FileStore(Store):
    """Objects as files under a root folder, which the first write makes.

    Raises MailboxUnavailable for a full disk, an input/output error or a stale network mount;
    MailboxDenied for missing permissions; MailboxMisconfigured for a read-only file system or a root that
    cannot be a folder; MailboxUnsuitable for a file system without hard links.
    """

    spans_processes = True

    page_keys = 1_000_000
    """A folder is read and sorted whole for each page, so that small pages would make long listings quadratic."""

    def __init__(self, root: str | os.PathLike[str], *, observe: Observer | None = None) -> None:
        super().__init__(observe=observe)
        self.root = Path(root).absolute()
        self._made: set[Path] = set()

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"

    def path(self, key: str) -> Path:
        """Return the file of an object."""
        *folders, name = key.split("/")
        return self.root.joinpath(*map(_folder_name, folders), _file_name(name))

    def store_time(self) -> float | None:
        """Return the clock of the file system, from a file's modification time."""
        with translated(self.root, "write"):
            self._make_folder(self.root)
            temporary = _written(self.root, b"")
            try:
                return temporary.stat().st_mtime
            finally:
                temporary.unlink(missing_ok=True)

    def _create(self, key: str, data: bytes) -> bool:
        path = self.path(key)
        with translated(path, "write"):
            # Spares a losing claim the cost of two flushes; the link alone decides.
            if path.exists():
                return False
            for _ in range(CREATE_ATTEMPTS):
                with contextlib.suppress(FileNotFoundError):
                    self._make_folder(path.parent)
                    return _published(path, data)
        raise MailboxUnavailable(
            f"cannot write {path}: its folder vanishes whenever it is made; try again or choose another"
        )

    def _read(self, key: str) -> bytes | None:
        path = self.path(key)
        with translated(path, "read"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _page(self, prefix: str, after: str) -> Page:
        with translated(self.root, "list"):
            return Page.of(list(islice(self._keys(prefix, after), self.page_keys + 1)), self.page_keys)

    def _remove(self, keys: Sequence[str]) -> None:
        paths = [self.path(key) for key in keys]
        for path in paths:
            with translated(path, "delete"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
        for folder in {path.parent for path in paths}:
            self._remove_empty(folder)

    def _keys(self, prefix: str, after: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]
        if not folder:
            return _walk(self.root, "", prefix, after)
        if problem(folder):
            return iter(())
        return _walk(self.root.joinpath(*map(_folder_name, folder.split("/"))), f"{folder}/", prefix, after)

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                self._made.add(path)
            _flush_folder(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and those above it while they are empty; the root and above only if this store made them."""
        # A folder that is in use, or that another process removes first, stops the climb.
        with contextlib.suppress(OSError):
            while self.root in folder.parents or folder in self._made:
                folder.rmdir()
                folder = folder.parent


def _file_name(segment: str) -> str:
    return segment if "." in segment else f"{segment}."


def _folder_name(segment: str) -> str:
    return f"{segment}~" if "." in segment else segment


def _walk(folder: Path, base: str, prefix: str, after: str) -> Iterator[str]:
    """Yield a folder's keys in order, opening a folder inside it only when its keys are next."""
    for text, name in sorted(_entries(folder, base, prefix, after)):
        if not _is_ours(name, text):
            continue
        if text.endswith("/"):
            yield from _walk(folder / name, text, prefix, after)
        else:
            yield text


def _entries(folder: Path, base: str, prefix: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of each wanted file and (start of keys, name) of each folder that may hold some.

    Removes what killed writers left.
    """
    try:
        found = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with found:
        for entry in found:
            if entry.name.startswith(TEMPORARY):
                _remove_abandoned(Path(entry.path))
                continue
            text = base + _text(entry.name, entry.is_dir())
            if _wanted(text, prefix, after):
                yield text, entry.name


def _text(name: str, is_folder: bool) -> str:
    return f"{name.removesuffix('~')}/" if is_folder else name.removesuffix(".")


def _wanted(text: str, prefix: str, after: str) -> bool:
    """Whether the key, or some key in the folder, starts with prefix and sorts after `after`."""
    if text.endswith("/"):
        return (text.startswith(prefix) or prefix.startswith(text)) and (text > after or after.startswith(text))
    return text > after and text.startswith(prefix)


def _is_ours(name: str, text: str) -> bool:
    """Whether the store itself would give the directory entry this name."""
    *_, segment = text.removesuffix("/").split("/")
    made = _folder_name(segment) if text.endswith("/") else _file_name(segment)
    return made == name and problem(segment) is None


def _remove_abandoned(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - temporary.stat().st_mtime > ABANDONED_SECONDS:
            temporary.unlink()


def _published(path: Path, data: bytes) -> bool:
    """Make the object appear whole under its name; False if the name is taken."""
    temporary = _written(path.parent, data)
    try:
        created = _linked(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    if created:
        with contextlib.suppress(FileNotFoundError):
            _flush_folder(path.parent)
    return created


def _written(folder: Path, data: bytes) -> Path:
    """Return a new temporary file that holds the data, flushed to the disk."""
    temporary = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb", buffering=0) as file:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[file.write(remaining) :]
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _linked(temporary: Path, path: Path) -> bool:
    """Link the file to its final name; False if the name is taken."""
    try:
        os.link(temporary, path)
    except OSError as error:
        # A network file system may have made the link and lost the answer: the count of links tells the truth.
        if temporary.stat().st_nlink == 2:
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno == errno.EPERM:
            raise OSError(errno.ENOTSUP, "no hard links", str(path)) from error
        raise
    return True


def _flush_folder(folder: Path) -> None:
    """Make the folder's new entries survive a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
