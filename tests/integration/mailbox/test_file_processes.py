"""The file mailbox between processes: races, and writers that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gradientmail.mailbox.file import ABANDONED_SECONDS, FileStore
from tests.integration.mailbox import writers


def outcome(how: str, folder: Path) -> Any:
    program = [sys.executable, writers.__file__, how, str(folder)]
    return json.loads(subprocess.run(program, check=True, capture_output=True, timeout=90).stdout)


def test_one_of_racing_processes_creates_each_object(tmp_path: Path) -> None:
    won: list[list[int]] = outcome("race", tmp_path)
    assert sorted(number for numbers in won for number in numbers) == list(range(writers.RACED_KEYS))
    store = FileStore(tmp_path)
    for racer, numbers in enumerate(won):
        assert {store.get(f"units/{number:04d}") for number in numbers} <= {b"%d" % racer}
    assert list(tmp_path.rglob(".tmp-*")) == []


def test_a_writer_killed_before_any_line_leaves_the_whole_object_or_none(tmp_path: Path) -> None:
    points: int = outcome("lines", tmp_path)
    assert points > 30
    landed = []
    for line in range(1, points + 2):
        store = FileStore(tmp_path / f"{line:03d}")
        found = list(store.list())
        assert found in ([], [writers.KEY])
        assert store.get(writers.KEY) == (writers.DATA if found else None)
        assert store.put_if_absent(writers.KEY, b"the next writer's") is not bool(found)
        landed.append(bool(found))
    assert landed == sorted(landed)  # nothing before the link, everything after it
    assert 10 < landed.index(True) < points


def test_writers_killed_at_any_time_leave_only_whole_objects(tmp_path: Path) -> None:
    assert outcome("times", tmp_path) == writers.KILLED_WRITERS
    store = FileStore(tmp_path)
    found = list(store.list())
    assert len(found) >= writers.KILLED_WRITERS
    for key in found:
        assert store.get(key) == writers.large(int(key.removeprefix("units/")))


def test_what_writers_leave_is_removed_once_it_is_old(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_if_absent("units/0", b"")
    old, young = tmp_path / "units/.tmp-old", tmp_path / "units/.tmp-young"
    for path in (old, young):
        path.write_bytes(b"part")
    os.utime(old, times=(0, time.time() - ABANDONED_SECONDS - 60))
    assert list(store.list("units/")) == ["units/0"]
    assert not old.exists()
    assert young.exists()
