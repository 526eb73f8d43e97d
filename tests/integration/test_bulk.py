"""Many objects read at once, by threads and by processes."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gradientmail import bulk
from gradientmail.bulk import READERS, read_by_processes, read_by_threads, worth_processes
from gradientmail.mailbox import MailboxUnavailable, S3Options, Store, open_mailbox
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.runstate import read_run
from tests.integration.stored_runs import stored, stored_at_once
from tests.unit.report.simulated import state

RUN = state({"a": 1.0, "b": 0.5}, steps=60, unit_steps=1)


def test_threads_read_what_is_there_and_say_how_far_they_are() -> None:
    box = MemoryStore()
    for index in range(0, 200, 2):
        box.put_if_absent(f"k/{index:03d}", str(index).encode())
    heard: list[tuple[int, int]] = []
    with ThreadPoolExecutor(READERS) as pool:
        keys = [f"k/{index:03d}" for index in range(200)]
        found = read_by_threads(box, keys, pool, lambda done, every: heard.append((done, every)))
    assert found == {f"k/{index:03d}": str(index).encode() for index in range(0, 200, 2)}
    assert heard[-1] == (200, 200)
    assert heard == sorted(heard)


def test_processes_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_at_once(tmp_path, RUN)
    box = open_mailbox(tmp_path.as_uri())
    monkeypatch.setattr(bulk, "PER_PROCESS", 50)
    heard: list[tuple[int, int]] = []
    keys = [*box.list("consumed/"), "consumed/none"]
    found = read_by_processes(box, keys, 2, lambda done, every: heard.append((done, every)))
    assert found == {key: box.get(key) for key in keys[:-1]}
    assert len(found) == 240
    assert heard == [(50, 241), (100, 241), (150, 241), (200, 241), (241, 241)]


class Deadly(MemoryStore):
    """A store that kills every process that reads from it but the one that made it."""

    def __reduce__(self) -> Any:
        return Elsewhere, ()


class Elsewhere(MemoryStore):
    """What becomes of it in another process."""

    def _read(self, key: str) -> bytes | None:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(key)


def test_what_killed_processes_have_not_read_is_read_here(caplog: pytest.LogCaptureFixture) -> None:
    box = Deadly()
    for key, data in (("k/1", b"one"), ("k/2", b"two")):
        box.put_if_absent(key, data)
    assert read_by_processes(box, ["k/1", "k/2", "k/3"], 2) == {"k/1": b"one", "k/2": b"two"}
    (told,) = caplog.messages
    assert told.startswith("a process that read objects was killed")


def test_a_run_on_s3_is_read_by_processes_as_by_threads(s3_box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    small = state({"a": 1.0, "b": 0.5}, steps=6, unit_steps=1)
    stored(s3_box, small)
    monkeypatch.setattr(bulk, "WORTH_PROCESSES", 10)
    requests: list[str] = []
    s3_box.observe = lambda request: requests.append(request.operation)
    assert read_run(s3_box, processes=2, clock=lambda: small.read_at) == small
    assert requests.count("get") == 3  # manifest and farewells; the receipts were asked for elsewhere


def test_a_store_that_does_not_answer_a_process_is_the_same_error() -> None:
    away = S3Options(endpoint_url="http://127.0.0.1:9", region="us-east-1", attempts=1)
    box = open_mailbox("s3://bucket/x", s3=away)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with pytest.raises(MailboxUnavailable, match=r"127\.0\.0\.1:9"):
            read_by_processes(box, ["consumed/a"], 2)


@pytest.mark.parametrize(("objects", "processes", "worth"), [(19_999, 8, False), (20_000, 8, True), (20_000, 1, False)])
def test_processes_are_started_for_many_objects_alone(
    objects: int, processes: int, worth: bool, tmp_path: Path
) -> None:
    assert worth_processes(open_mailbox(tmp_path.as_uri()), objects, processes) is worth


def test_a_store_in_memory_is_read_by_threads() -> None:
    assert not worth_processes(MemoryStore(), 1_000_000, 8)
