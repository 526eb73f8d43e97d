from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import NoReturn

import pytest

from gradientmail.mailbox import (
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxUnavailable,
    MailboxUnsuitable,
)
from gradientmail.mailbox.file import FileStore
from gradientmail.mailbox.file_errors import explained


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("run.json", "run.json"),
        ("units/000000-0.json", "units/000000-0.json"),
        ("alive/node-0/0000000001", "alive/node-0/0000000001."),
        ("left/host.example", "left/host.example"),
        ("alive/host.example/1.5", "alive/host.example~/1.5"),
        ("a", "a."),
        (".hidden/.hidden", ".hidden~/.hidden"),
    ],
)
def test_files_and_folders_never_compete_for_a_name(tmp_path: Path, key: str, path: str) -> None:
    store = FileStore(tmp_path)
    assert store.path(key) == tmp_path / path
    assert store.put_if_absent(key, b"x")
    assert (tmp_path / path).read_bytes() == b"x"
    assert list(store.list()) == [key]


def test_a_missing_folder_is_an_empty_mailbox_and_comes_with_the_first_write(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "not" / "yet")
    assert store.get("a") is None
    assert list(store.list()) == []
    store.delete(["a"])
    assert not (tmp_path / "not").exists()
    assert store.put_if_absent("a", b"")
    assert (tmp_path / "not" / "yet").is_dir()


def test_folders_that_become_empty_are_removed_up_to_what_was_there_before(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "box")
    store.put_if_absent("a/b/c", b"")
    store.put_if_absent("a/d", b"")
    store.delete(["a/b/c"])
    assert sorted(path.name for path in (tmp_path / "box/a").iterdir()) == ["d."]
    store.delete(["a/d"])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    store = FileStore(tmp_path / "box")
    store.put_if_absent("a/b", b"")
    store.delete(["a/b"])
    assert list((tmp_path / "box").iterdir()) == []


def test_what_other_programs_leave_in_the_folder_is_not_listed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_if_absent("units/0.json", b"")
    (tmp_path / "units" / "no-dot").touch()
    (tmp_path / "units" / "backup.json~").touch()
    (tmp_path / ".snapshot").mkdir()
    (tmp_path / ".snapshot" / "x.json").touch()
    (tmp_path / "line\nbreak.json").touch()
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json"))).touch()
    assert list(store.list()) == ["units/0.json"]


def test_a_listing_opens_only_the_folders_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    for key in ("alive/a/1", "alive/b/1", "alive/b/2", "alive/c/1", "units/1", "units/2"):
        store.put_if_absent(key, b"")
    opened: list[str] = []
    scandir = os.scandir

    def recorded(path: Path) -> object:
        opened.append(path.relative_to(tmp_path).as_posix())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", recorded)
    assert list(store.list("alive/", after="alive/b/1")) == ["alive/b/2", "alive/c/1"]
    assert opened == ["alive", "alive/b", "alive/c"]
    opened.clear()
    store.page_keys = 1
    assert next(store.list()) == "alive/a/1"
    assert opened == [".", "alive", "alive/a", "alive/b"]


def test_a_link_that_was_made_counts_although_its_answer_was_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lost_answer(source: Path, target: Path) -> NoReturn:
        link(source, target)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "link", lost_answer)
    store = FileStore(tmp_path)
    assert store.put_if_absent("a", b"1") is True
    assert store.get("a") == b"1"


def test_a_link_whose_retry_met_itself_counts_as_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def sent_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", sent_twice)
    assert FileStore(tmp_path).put_if_absent("a", b"1") is True


def test_losing_at_the_very_link_is_losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, link = FileStore(tmp_path), os.link

    def overtaken(source: Path, target: Path) -> None:
        target.write_bytes(b"the other's")
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    assert store.put_if_absent("a", b"mine") is False
    assert store.get("a") == b"the other's"
    assert [path.name for path in tmp_path.iterdir()] == ["a."]


def test_a_folder_removed_in_mid_write_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, link, removals = FileStore(tmp_path), os.link, [1]

    def swept(source: Path, target: Path) -> None:
        if removals:
            removals.pop()
            source.unlink()
            source.parent.rmdir()
        link(source, target)

    monkeypatch.setattr(os, "link", swept)
    assert store.put_if_absent("units/0", b"1") is True
    assert store.get("units/0") == b"1"


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(MailboxMisconfigured, match="the file is larger than the file system or `ulimit -f` allows"):
            store.put_if_absent("a", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MailboxUnavailable, match="no space is left on the disk; free some and try again"):
        FileStore(tmp_path).put_if_absent("a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MailboxMisconfigured, match="a part of the path is a file, not a folder"):
        FileStore(tmp_path / "file").put_if_absent("a", b"x")


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    store = FileStore(tmp_path / ("x" * 300))
    for call in (lambda: store.put_if_absent("a", b""), lambda: store.get("a"), lambda: list(store.list())):
        with pytest.raises(MailboxMisconfigured, match="the path is too long; choose a folder with a shorter path"):
            call()


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (
            errno.ENOSPC,
            MailboxUnavailable,
            "cannot write /box/a.: no space is left on the disk; free some and try again",
        ),
        (errno.EIO, MailboxUnavailable, "cannot write /box/a.: Input/output error; try again"),
        (
            errno.ESTALE,
            MailboxUnavailable,
            "cannot write /box/a.: the network mount is stale; try again or mount it anew",
        ),
        (
            errno.EACCES,
            MailboxDenied,
            "cannot write /box/a.: permission denied; give this user read and write access to the folder",
        ),
        (
            errno.EROFS,
            MailboxMisconfigured,
            "cannot write /box/a.: the file system is read-only; choose a folder that can be written",
        ),
        (
            errno.ENOTSUP,
            MailboxUnsuitable,
            "cannot write /box/a.: the file system has no hard links; choose a folder on another",
        ),
    ],
)
def test_errors_are_one_sentence_that_says_what_to_do(number: int, kind: type[MailboxError], message: str) -> None:
    error = explained(OSError(number, os.strerror(number)), Path("/box/a."), "write")
    assert type(error) is kind
    assert str(error) == message


def test_a_file_system_without_hard_links_is_unsuitable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: Path, target: Path) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(MailboxUnsuitable, match="has no hard links"):
        FileStore(tmp_path).put_if_absent("a", b"")
    assert list(tmp_path.iterdir()) == []


def test_the_clock_is_the_file_systems(tmp_path: Path) -> None:
    stated = FileStore(tmp_path / "box").store_time()
    assert stated is not None
    assert abs(stated - (tmp_path / "box").stat().st_mtime) < 5
    assert list((tmp_path / "box").iterdir()) == []
