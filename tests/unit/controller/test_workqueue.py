"""Each key once, by one worker, when it is due: on a real event loop with a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gradientrun.workqueue import Later, WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A queue whose work waits until the test lets it go on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()
        self.answer: Callable[[str], float | None] = lambda _: None

    async def work(self, key: str) -> float | None:
        self.begun.append(key)
        await self.gate.wait()
        self.ended.append(key)
        return self.answer(key)

    async def moved(self, seconds: float) -> None:
        """Move the clock on, and have the queue look at it."""
        self.clock.now += seconds
        self.queue.add("tick", 1e9)
        await settled()


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(workers: int = 4, *, open_gate: bool = True) -> AsyncIterator[Bench]:
    bench = Bench()
    if open_gate:
        bench.gate.set()
    task = asyncio.create_task(bench.queue.serve(bench.work, workers))
    try:
        yield bench
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_key_added_often_is_worked_on_once() -> None:
    async def scenario() -> list[str]:
        async with serving() as bench:
            for _ in range(5):
                bench.queue.add("a")
            await settled()
            return bench.ended

    assert asyncio.run(scenario()) == ["a"]


def test_a_key_is_never_with_two_workers_and_comes_again_if_added_meanwhile() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        async with serving(open_gate=False) as bench:
            bench.queue.add("a")
            await settled()
            bench.queue.add("a")
            bench.queue.add("a")
            await settled()
            while_busy = list(bench.begun)
            bench.gate.set()
            await settled()
            return while_busy, bench.ended

    assert asyncio.run(scenario()) == (["a"], ["a", "a"])


def test_no_more_keys_at_a_time_than_workers() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        async with serving(workers=2, open_gate=False) as bench:
            for key in "abc":
                bench.queue.add(key)
            await settled()
            first = list(bench.begun)
            bench.gate.set()
            await settled()
            return first, bench.ended

    assert asyncio.run(scenario()) == (["a", "b"], ["a", "b", "c"])


def test_a_later_key_waits_until_it_is_due_and_the_earlier_time_counts() -> None:
    async def scenario() -> tuple[list[str], list[str], list[str]]:
        async with serving() as bench:
            bench.queue.add("a", 10)
            bench.queue.add("a", 5)
            bench.queue.add("a", 20)
            await settled()
            none = list(bench.ended)
            await bench.moved(4.9)
            still_none = list(bench.ended)
            await bench.moved(0.2)
            return none, still_none, bench.ended

    assert asyncio.run(scenario()) == ([], [], ["a"])


def test_a_key_comes_back_when_its_work_says_so() -> None:
    async def scenario() -> tuple[int, int]:
        async with serving() as bench:
            bench.answer = lambda _: 7.0
            bench.queue.add("a")
            await settled()
            once = len(bench.ended)
            await bench.moved(7.0)
            return once, len(bench.ended)

    assert asyncio.run(scenario()) == (1, 2)


def test_failures_come_back_after_twice_the_time_and_a_success_forgets_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: str) -> float | None:
        raise RuntimeError("boom")

    async def scenario() -> list[int]:
        async with serving() as bench:
            bench.answer = fails
            bench.queue.add("a")
            counts = []
            for seconds in (0, 0.9, 0.1, 1.9, 0.1):
                await bench.moved(seconds)
                counts.append(len(bench.ended))
            bench.answer = lambda _: None
            await bench.moved(4)
            bench.answer = fails
            bench.queue.add("a")
            await settled()
            await bench.moved(1)
            counts.append(len(bench.ended))
            return counts

    assert asyncio.run(scenario()) == [1, 1, 2, 2, 3, 6]
    assert "boom" in caplog.text


def test_a_worker_may_say_when_to_try_again_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def later(_: str) -> float | None:
        raise Later("the API server is away", 3.0)

    async def scenario() -> list[int]:
        async with serving() as bench:
            bench.answer = later
            bench.queue.add("a")
            await settled()
            counts = [len(bench.ended)]
            await bench.moved(3)
            return [*counts, len(bench.ended)]

    with caplog.at_level(logging.INFO):
        assert asyncio.run(scenario()) == [1, 2]
    assert "a: again in 3 s: the API server is away" in caplog.text
    assert "Traceback" not in caplog.text


def test_how_long_keys_wait_is_known_in_the_queue_and_in_work() -> None:
    async def scenario() -> tuple[float, float, float]:
        async with serving(workers=1, open_gate=False) as bench:
            idle = bench.queue.waited()
            bench.queue.add("a")
            await settled()
            bench.clock.now += 40
            busy = bench.queue.waited()
            bench.gate.set()
            await settled()
            return idle, busy, bench.queue.waited()

    assert asyncio.run(scenario()) == (0.0, 40.0, 0.0)
