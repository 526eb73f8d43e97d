"""Figures of a Session: time that `step` blocks, bytes, memory and objects.

.venv/bin/python -m bench.exchange.figures
"""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.figures import Figure, show
from gradientmail.exchange import ExchangeStatistics, Session
from gradientmail.mailbox import Mailbox, MailboxUnavailable, open_mailbox
from gradientmail.mailbox.memory import MemoryStore

TENSORS = 16

figures: list[Figure] = []


@dataclass
class Distant:
    """A store that takes its time, and can be stopped."""

    inner: Mailbox
    seconds: float = 0.1
    stopped: bool = False

    def _travel(self) -> None:
        time.sleep(self.seconds)
        if self.stopped:
            raise MailboxUnavailable("the store is stopped")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._travel()
        return self.inner.put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self._travel()
        return self.inner.get(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        self._travel()
        return self.inner.list(prefix, after=after)

    def delete(self, keys: Iterable[str]) -> None:
        self._travel()
        self.inner.delete(keys)


def weights(numbers: int) -> nn.Module:
    return nn.ParameterList(nn.Parameter(torch.randn(numbers // TENSORS)) for _ in range(TENSORS))


def spin(seconds: float) -> None:
    """Do as training does: hold the thread, but for numbers, not for the interpreter."""
    end = time.perf_counter() + seconds
    square = torch.randn(192, 192)
    while time.perf_counter() < end:
        square = (square @ square).clamp_(-1, 1)


def report(what: str, value: str, goal: str, holds: bool) -> None:
    figures.append(Figure(what, value, goal, holds))


def blocked() -> None:
    for stopped in (False, True):
        box, model = Distant(MemoryStore()), weights(4_000_000)
        with Session(model, mailbox=box, learner_id="node-0", sync_every=100, flush_seconds=2.0) as session:
            start = time.perf_counter()
            for step in range(1000):
                box.stopped = stopped and step >= 200
                spin(0.02)
                session.step(samples=1)
            seconds, counts = time.perf_counter() - start, session.statistics
            box.stopped = False
        share = counts.blocked_seconds / seconds
        where = "100 ms away, stopped after 200 steps" if stopped else "100 ms away"
        what = f"step blocks training, 4 million parameters, 1,000 steps of 20 ms, store {where}"
        value = f"{share:.3%} of the run, {counts.contributions} contributions, {counts.adopted} versions adopted"
        report(what, value, "under 1 %", share < 0.01)


def together(nodes: int, steps: int, numbers: int, **options: Any) -> tuple[MemoryStore, list[ExchangeStatistics], int]:
    """Run nodes as threads in step; return their counts, and the most objects seen."""
    box, counts, barrier, most = MemoryStore(), list[ExchangeStatistics](), threading.Barrier(nodes), 0

    def node(index: int) -> None:
        nonlocal most
        options_ = {"sync_every": 10, "poll_seconds": 0.005, **options}
        with Session(weights(numbers), mailbox=box, learner_id=f"node-{index}", **options_) as session:
            barrier.wait()
            for _ in range(steps):
                spin(0.005)
                session.step(samples=1)
                most = max(most, sum(1 for _ in box.list()))
            barrier.wait()
            counts.append(session.statistics)

    threads = [threading.Thread(target=node, args=(index,)) for index in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return box, counts, most


def traffic() -> None:
    numbers, steps = 400_000, 300
    _, counts, _ = together(3, steps, numbers, patience_seconds=5.0)
    for told in sorted(counts, key=lambda item: item.closed):
        rounds = steps / 10
        size = 2 * numbers
        sent, received = told.sent_bytes / rounds / size, told.received_bytes / rounds / size
        role = f"closer of {told.closed} rounds" if told.closed else "no closer"
        within = told.closed > 0 or (sent <= 1.05 and received <= 1.05 + 2 / rounds)
        goal = "sent <= 1, received <= 1 plus joining; a closer's are counted"
        what = f"bytes per sync_every, in parameters of the transfer type, {role}"
        report(what, f"sent {sent:.2f}, received {received:.2f}", goal, within)


def memory() -> None:
    numbers, ended, most = 32_000_000, threading.Event(), 0

    def sample() -> None:
        nonlocal most
        while not ended.wait(0.002):
            most = max(most, _anonymous())

    with tempfile.TemporaryDirectory() as folder:
        model = weights(numbers)
        spin(0.1)
        gc.collect()
        before = _anonymous()
        sampler = threading.Thread(target=sample)
        sampler.start()
        box = open_mailbox(Path(folder).as_uri())
        with Session(model, mailbox=box, learner_id="node-0", sync_every=400, flush_seconds=60.0) as session:
            while min(session.statistics.versions) < 3:
                spin(0.02)
                session.step(samples=1)
            counts = session.statistics
        ended.set()
        sampler.join()
    extra = (most - before) / (4 * numbers)
    value = f"{extra:.2f} times the parameters' bytes at the most, {counts.closed} rounds closed by this node"
    report(
        "extra memory of a node that closes every round, 32 million float32 parameters", value, "at most 4", extra <= 4
    )


def objects() -> None:
    _, counts, most = together(3, 2000, 16_000, sync_every=4, fragments=4)
    versions = min(min(told.versions) for told in counts)
    bound = 4 * 5 * (3 * 2 + 4) + 3 + 1
    value = f"at most {most} after {versions} versions of 4 fragments by 3 nodes"
    report("objects in the bucket", value, f"bounded by {bound}", most <= bound)


def _anonymous() -> int:
    """Return the process's own memory, without the libraries' pages."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


PARTS: dict[str, Callable[[], None]] = {"blocked": blocked, "traffic": traffic, "memory": memory, "objects": objects}


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
    show(figures)


if __name__ == "__main__":
    main()
