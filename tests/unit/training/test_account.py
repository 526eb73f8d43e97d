"""A node's running totals and what it is doing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradientmail.exchange import ExchangeStatistics
from gradientmail.patterns.shared_queue import QueueStatistics
from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.training.account import Account, Activity, Doing


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_joins_the_loops_and_the_queues_counts() -> None:
    account = Account("l", "a-0", clock=lambda: 1000.0)
    account.queue = lambda: QueueStatistics(claimed=3, consumed=2, conflicts=1, buffered=4, wait_seconds=0.12345)
    account.trained(step=7, samples=64)
    account.trained(step=8, samples=64)
    account.loss = 2.0
    assert account.progress() == NodeProgress(
        learner="l",
        node="a-0",
        time=1000.0,
        claimed=3,
        consumed=2,
        conflicts=1,
        batches=2,
        samples=128,
        step=8,
        loss=2.0,
        buffered=4,
        wait_seconds=0.123,
    )


def test_progress_tells_what_was_exchanged() -> None:
    account = Account("l", "a-0")
    assert account.progress().exchange is None
    account.exchange = lambda: ExchangeStatistics(
        steps=9, contributions=4, merged=3, adopted=5, versions=(5, 4), sent_bytes=16, blocked_seconds=0.12345
    )
    account.final_held_out_loss = 2.5
    assert account.progress().exchange == ExchangeProgress(
        contributions=4, merged=3, adopted=5, versions=(5, 4), sent_bytes=16, blocked_seconds=0.123
    )
    account.exchange = lambda: ExchangeStatistics(final_samples=640)
    assert account.progress().exchange == ExchangeProgress(final_samples=640, final_held_out_loss=2.5)


def test_time_on_batches_is_neither_waiting_nor_evaluating() -> None:
    clock = Clock()
    account = Account("l", "a-0", monotonic=clock)

    def batches() -> Iterator[int]:
        for number in range(2):
            clock.now += 10.0
            yield number

    for number in account.watched(batches()):
        assert account.activity.doing == "training"
        clock.now += 2.0
        if number == 0:
            account.doing("evaluating")
            clock.now += 5.0
    assert account.train_seconds == 4.0
    assert account.activity == Activity("waiting", 129.0)


def test_a_batch_under_way_counts_as_time_on_batches() -> None:
    clock = Clock()
    account = Account("l", "a-0", monotonic=clock)
    account.doing("training")
    clock.now += 600.0  # the first one compiles the model
    assert account.progress().train_seconds == 600.0
    account.doing("waiting")
    clock.now += 5.0
    assert account.progress().train_seconds == 600.0


@pytest.mark.parametrize(
    ("doing", "seconds", "loading", "alive"),
    [
        ("starting", 10_000, False, True),
        ("leaving", 10_000, False, True),
        ("waiting", 10_000, True, True),
        ("waiting", 59, False, True),
        ("waiting", 61, False, False),
        ("training", 899, False, True),
        ("training", 901, True, False),
        ("evaluating", 901, True, False),
    ],
)
def test_alive(doing: Doing, seconds: float, loading: bool, alive: bool) -> None:
    activity = Activity(doing, 50.0)
    assert activity.alive(now=50.0 + seconds, loading=loading, stall_seconds=900.0) is alive
