"""Heartbeats, and the threads that do something every so often."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from gradientmail.mailbox import MailboxUnavailable
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.progress import NodeProgress
from gradientmail.training.heartbeat import Heartbeat
from gradientmail.training.periodic import Periodic

SECONDS = 10.0


def test_each_beat_replaces_the_one_before() -> None:
    box = MemoryStore()
    box.put_if_absent("alive/l/0000000000", b"registered")
    counts = iter(range(1, 10))
    heartbeat = Heartbeat(box, "l", lambda: NodeProgress("l", "a-0", claimed=next(counts)))
    for _ in range(3):
        heartbeat.beat()
    assert list(box.list("alive/")) == ["alive/l/0000000000", "alive/l/0000000003"]
    beat = box.get("alive/l/0000000003")
    assert beat is not None
    assert NodeProgress.from_json(beat).claimed == 3


def test_beats_whose_answer_was_lost_are_deleted_later() -> None:
    class LosesAnswers(MemoryStore):
        down = False

        def put_if_absent(self, key: str, data: bytes) -> bool:
            created = super().put_if_absent(key, data)
            if self.down:
                raise MailboxUnavailable("no answer")
            return created

    box = LosesAnswers()
    heartbeat = Heartbeat(box, "l", lambda: NodeProgress("l", "a-0"))
    heartbeat.beat()
    box.down = True
    for _ in range(2):
        with pytest.raises(MailboxUnavailable):
            heartbeat.beat()
    box.down = False
    heartbeat.beat()
    assert list(box.list("alive/")) == ["alive/l/0000000004"]


def test_beat_that_could_not_be_deleted_is_deleted_by_the_next() -> None:
    class Keeps(MemoryStore):
        down = False

        def delete(self, keys: Iterable[str]) -> None:
            if self.down:
                raise MailboxUnavailable("no answer")
            super().delete(keys)

    box = Keeps()
    heartbeat = Heartbeat(box, "l", lambda: NodeProgress("l", "a-0"))
    heartbeat.beat()
    box.down = True
    with pytest.raises(MailboxUnavailable):
        heartbeat.beat()
    box.down = False
    heartbeat.beat()
    assert list(box.list("alive/")) == ["alive/l/0000000003"]


def test_periodic_calls_at_once_and_again_until_left() -> None:
    calls = threading.Semaphore(0)
    with Periodic("ticks", 0.001, calls.release):
        for _ in range(3):
            assert calls.acquire(timeout=SECONDS)
    assert "ticks" not in {thread.name for thread in threading.enumerate()}


def test_periodic_goes_on_after_a_failure_and_tells_it_once(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise MailboxUnavailable("no answer")
        done.set()

    with caplog.at_level(logging.WARNING, "gradientmail"), Periodic("ticks", 0.001, call):
        assert done.wait(SECONDS)
    assert [record.getMessage() for record in caplog.records] == ["ticks: no answer; trying again every 0.001 s"]
