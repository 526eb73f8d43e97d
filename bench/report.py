"""What a report of 100,000 units takes: requests, how many at once, processor time, size of the page."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Semaphore

from bench.answers import answering
from bench.figures import Figure, show
from gradientmail import grid
from gradientmail.bulk import READERS, read_by_threads
from gradientmail.layout import CONSUMED, left_key, receipt_key
from gradientmail.mailbox import S3Options, open_mailbox
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.progress import NodeProgress, Receipt
from gradientmail.report.page import View, report_page
from gradientmail.run import GradientRun
from gradientmail.runstate import read_run
from gradientmail.simulation import SimulatedNode, simulate

UNITS = 100_000
EPOCH = 1_700_000_000.0
SPEEDS = {"a": 4.0, "b": 2.0, "c": 2.0, "d": 1.0}
TOGETHER_SECONDS = 60.0


class Counted(MemoryStore):
    """Counts requests, and lets the first receipts be read only once so many readers ask for them together."""

    def __init__(self) -> None:
        super().__init__(observe=lambda request: self.requests.update([request.operation]))
        self.requests: Counter[str] = Counter()
        self.together = Barrier(READERS)
        self._first = Semaphore(READERS)

    def fill(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Put objects in place without a request for each."""
        self._objects = dict(objects)
        self._sorted = sorted(self._objects)

    def _read(self, key: str) -> bytes | None:
        if key.startswith(CONSUMED) and self._first.acquire(blocking=False):
            self.together.wait(TOGETHER_SECONDS)
        return super()._read(key)


def finished(units: int) -> Sequence[tuple[str, bytes]]:
    """Return the objects of a finished run of four nodes."""
    steps = units // 4
    data = {"steps": steps, "batch": 4, "lanes": 4, "unitSteps": 1}
    run = GradientRun.model_validate(
        {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": "bench"},
            "spec": {"data": data, "trainer": {"microBatch": 1}, "nodes": [{"name": name} for name in SPEEDS]},
        }
    )
    nodes = [SimulatedNode.steady(name, speed) for name, speed in SPEEDS.items()]
    found = [("run.json", run.model_dump_json(by_alias=True).encode())]
    for unit in simulate(grid(steps=steps, unit_steps=1, lanes=4), nodes).units:
        learner = f"{unit.node}-0-x"
        times = (EPOCH + moment for moment in (unit.claimed, unit.started, unit.finished))
        found.append((f"units/{unit.identifier}", learner.encode()))
        found.append((receipt_key(unit.identifier), Receipt(learner, 1, *times).to_json().encode()))
    for name in SPEEDS:
        word = NodeProgress(f"{name}-0-x", f"{name}-0", EPOCH, "finished", wait_seconds=1.0, train_seconds=100.0)
        found.append((left_key(word.learner), word.to_json().encode()))
    return found


def figures() -> list[Figure]:
    """Read a run, make its page, and compare."""
    box = Counted()
    box.fill(finished(UNITS))
    started = time.process_time()
    state = read_run(box)
    read = time.process_time()
    text = report_page(View.of(state))
    made = time.process_time()
    pages = 2 * (UNITS // 1000) + 2
    words = 1 + len(SPEEDS)
    together = not box.together.broken
    return [
        Figure(
            f"requests of a report, {UNITS:,} units",
            f"{box.requests['get']:,} get, {box.requests['list']:,} list, {box.requests.total():,} in all",
            "one get per receipt, node and manifest, one list per 1,000 claims or receipts",
            box.requests == {"get": UNITS + words, "list": pages},
        ),
        Figure("receipts read at once", f"{READERS}" if together else "fewer", f"{READERS}", together),
        Figure(
            "processor time of a report",
            f"{read - started:.1f} s reading, {made - read:.1f} s figures and page",
            "under 15 s in all",
            made - started < 15.0,
        ),
        Figure("size of its page", f"{len(text.encode()) / 1000:.0f} kB", "under 100 kB", len(text) < 100_000),
    ]


def from_s3(receipts: int = 5000) -> Figure:
    """Measure what S3's client takes for a receipt, at a server that takes nothing."""
    credentials = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(credentials)
    with answering() as url, ThreadPoolExecutor(READERS) as pool:
        box = open_mailbox("s3://bench/run", s3=S3Options(endpoint_url=url))
        box.get("consumed/first")  # makes the client, which takes as long as many requests
        started = time.process_time()
        read_by_threads(box, [f"consumed/{index}" for index in range(receipts)], pool)
        each = (time.process_time() - started) / receipts
    text = f"{1000 * each:.2f} ms a receipt, {each * UNITS:.0f} s for {UNITS:,} of them, shared by all cores"
    return Figure("processor time of reading from S3", text, "under 3 ms a receipt", each < 0.003)


if __name__ == "__main__":
    show([*figures(), from_s3()])
