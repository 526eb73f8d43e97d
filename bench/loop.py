"""What the queue costs the training loop: waiting, time per batch, batches alive."""

from __future__ import annotations

import statistics
import threading
import time
import weakref
from collections.abc import Iterator

from bench.figures import Figure, show
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.shared_queue import shared_queue

TRAIN_SECONDS = 0.010
LOAD_SECONDS = 0.005


class Slow(MemoryStore):
    """A store that takes 20 ms per request, as S3 does."""

    def _create(self, key: str, data: bytes) -> bool:
        time.sleep(0.02)
        return super()._create(key, data)

    def _read(self, key: str) -> bytes | None:
        time.sleep(0.02)
        return super()._read(key)


def waiting(units: int = 100, batches_per_unit: int = 20) -> Figure:
    """Measure the share of the run that the loop waits when loading is twice as fast as training."""

    def load(_: int) -> Iterator[int]:
        for number in range(batches_per_unit):
            time.sleep(LOAD_SECONDS)
            yield number

    start = time.perf_counter()
    mapping = {f"{unit:06d}": unit for unit in range(units)}
    with shared_queue(mapping, mailbox=Slow(), learner_id="n", load=load) as batches:
        for _ in batches:
            time.sleep(TRAIN_SECONDS)
        share = batches.statistics.wait_seconds / (time.perf_counter() - start)
    return Figure("waiting, loading twice as fast as training", f"{share:.2%}", "under 1 %", share < 0.01)


def cost() -> Figure:
    """Measure the time of `next` with a batch there, while the thread loads and claims."""
    times = []

    def load(_: int) -> Iterator[int]:
        yield from range(20)

    mapping = {f"{unit:06d}": unit for unit in range(500)}
    with shared_queue(mapping, mailbox=MemoryStore(), learner_id="n", load=load) as batches:
        while True:
            pause = threading.Event()
            while batches.alive and batches.statistics.buffered < 8:
                pause.wait(0.0005)
            start = time.perf_counter()
            if next(batches, None) is None:
                break
            times.append(time.perf_counter() - start)
    middle, high = statistics.median(times) * 1e6, statistics.quantiles(times, n=20)[-1] * 1e6
    text = f"median {middle:.1f} µs, 95 % under {high:.1f} µs, {len(times)} batches"
    return Figure("queue's own cost per batch on the loop's side", text, "under 30 µs", middle < 30)


class Batch:
    """Something whose life can be followed."""


def alive(prefetch: int = 8) -> Figure:
    """Count the batches alive at any time."""
    living: weakref.WeakSet[Batch] = weakref.WeakSet()
    most = 0

    def load(_: int) -> Iterator[Batch]:
        for _ in range(20):
            batch = Batch()
            living.add(batch)
            yield batch
            del batch

    mapping = {f"{unit:06d}": unit for unit in range(100)}
    with shared_queue(mapping, mailbox=MemoryStore(), learner_id="n", load=load, prefetch=prefetch) as batches:
        for _ in batches:
            most = max(most, len(living))
    return Figure("batches alive at any time, prefetch 8", f"{most}", f"at most {prefetch + 2}", most <= prefetch + 2)


def main() -> None:
    """Measure and print."""
    show([waiting(), cost(), alive()])


if __name__ == "__main__":
    main()
