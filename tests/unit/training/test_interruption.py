"""Signals, sent to this very process."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from gradientmail.training.interruption import Interruption

SECONDS = 10.0


class Left:
    """Takes the place of ending the process."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self.code: int | None = None

    def __call__(self, code: int) -> None:
        self.code = code
        self.happened.set()


@pytest.fixture
def left() -> Left:
    return Left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_first_signal_asks_to_stop(left: Left, number: signal.Signals, code: int) -> None:
    stopped = threading.Event()
    with Interruption(SECONDS, leave=left) as interruption:
        interruption.on_stop(stopped.set)
        os.kill(os.getpid(), number)
        assert interruption.stopping.wait(SECONDS)
        assert stopped.wait(SECONDS)
        assert interruption.signal is number
        assert interruption.exit_code == code
    assert left.code is None


def test_second_signal_ends_the_process_at_once(left: Left) -> None:
    sentences: list[str] = []
    with Interruption(1000.0, leave=left) as interruption:
        interruption.on_overdue(sentences.append)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.stopping.wait(SECONDS)
        os.kill(os.getpid(), signal.SIGINT)
        assert left.happened.wait(SECONDS)
    assert left.code == 143
    assert sentences == ["left at once after SIGTERM and a second signal; receipts may be missing"]


def test_end_of_the_grace_time_ends_the_process(left: Left) -> None:
    sentences: list[str] = []
    with Interruption(0.05, leave=left) as interruption:
        interruption.on_overdue(sentences.append)
        os.kill(os.getpid(), signal.SIGTERM)
        assert left.happened.wait(SECONDS)
    assert left.code == 143
    assert sentences == [
        "left at once after SIGTERM and 0.05 s without an end to the current batch; receipts may be missing"
    ]


def test_what_is_added_after_the_signal_is_called_at_once(left: Left) -> None:
    with Interruption(SECONDS, leave=left) as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.stopping.wait(SECONDS)
        called = threading.Event()
        interruption.on_stop(called.set)
        assert called.wait(SECONDS)


def test_a_sleep_of_the_main_thread_ends_at_once(left: Left) -> None:
    with Interruption(SECONDS, leave=left) as interruption:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert interruption.stopping.wait(SECONDS)


def test_handlers_are_as_before_afterwards(left: Left) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Interruption(SECONDS, leave=left):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert "signals" not in {thread.name for thread in threading.enumerate()}


def test_other_signals_mean_nothing(left: Left) -> None:
    handled = threading.Event()
    old = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    try:
        with Interruption(SECONDS, leave=left) as interruption:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert handled.wait(SECONDS)
        assert not interruption.stopping.is_set()
    finally:
        signal.signal(signal.SIGUSR1, old)
