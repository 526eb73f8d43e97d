"""Requests made together: how long they are repeated, and which of their failures is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field

import pytest
import torch

from gradientmail.exchange import Diverged, Session
from gradientmail.exchange.driver import REQUESTS_AT_ONCE
from gradientmail.exchange.joining import found_or_read
from gradientmail.exchange.records import first_version
from gradientmail.exchange.requests import Fetch, Publish, Read, Together
from gradientmail.mailbox import MailboxUnavailable
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.retrying import Patience
from tests.unit.exchange.doubles import AGREEMENT, BOUND_SECONDS, Driven, Faulty, Small


def test_patience_runs_out_once_for_all_that_wait_their_turn() -> None:
    box = Faulty(MemoryStore(), stopped=True)
    driver = Driven(box, Small(), Patience(0.0, lambda _: False)).driver
    with pytest.raises(MailboxUnavailable, match="has not answered"):
        driver.answer(Together((Read("key"),) * 20))
    assert len(box.calls) <= REQUESTS_AT_ONCE
    box.stopped = False
    driver.patience = Patience(0.0, lambda _: False)
    driver.answer(Together((Read("key"), Read("key"))))
    driver.close()


def test_a_wait_that_is_given_up_does_not_hide_what_failed() -> None:
    box, model = Faulty(MemoryStore()), Small()
    driven = Driven(box, model, Patience(3600.0, lambda _: True))
    driver, replica = driven.driver, driven.replica
    founding = driver.hold(found_or_read("node-0", AGREEMENT, driven.parameters.layout))
    driver.answer(Fetch(first_version(founding, 0), None))
    replica.start()
    with torch.no_grad():
        model.embed.weight.fill_(float("nan"))
    replica.take(0)
    box.stopped = True
    with pytest.raises(Diverged, match="are not finite"):
        driver.answer(Together((Read("key"), Publish(0, 1))))
    driver.close()


@dataclass
class Interrupting(Faulty):
    """A store that stops once a blob is read; when it is asked again, the process is interrupted, once."""

    interrupted: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> bytes | None:
        if key.startswith("exchange/blobs/"):
            if ("get", key) in self.calls and self.interrupted.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)
            self.stopped = True
        return super().get(key)


def test_an_interrupt_while_joining_ends_what_other_threads_repeat() -> None:
    box = MemoryStore()
    with Session(Small(), mailbox=box, learner_id="node-0", fragments=2):
        one = Session(
            Small(), mailbox=Interrupting(box), learner_id="node-1", fragments=2, outage_seconds=BOUND_SECONDS
        )
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            one.__enter__()
        assert time.monotonic() - start < BOUND_SECONDS
