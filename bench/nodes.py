"""Real processes that train batches of known duration: nodes whose speed is exact, not the machine's."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gradientmail import Unit, open_mailbox
from gradientmail.patterns.shared_queue import shared_queue
from gradientmail.simulation import SimulatedNode

START_SECONDS = 3.0
"""Time for every process to be there before the common start."""

MEMORY = Path("/dev/shm")

STAGGER_SECONDS = 0.08
"""Nodes start one after another, so that A wins ties, as on the page; more than its claims take in all."""


@dataclass(frozen=True)
class Trained:
    """What one node did; times in seconds from the common start."""

    name: str
    units: int
    batches: int
    finished: float
    waited: float


class Pace:
    """Makes each batch end when the node's speeds say.

    What a sleep takes too long is made up by the next ones; what the loop waits for data is not.
    """

    def __init__(self, node: SimulatedNode, begin: float) -> None:
        self._node = node
        self._begin = begin
        self._due = begin
        self._waited = 0.0

    def batch(self, waited: float = 0.0) -> None:
        """Block until this batch would be done; `waited` is how long the loop has waited for data so far."""
        start = self._due + waited - self._waited
        self._waited = waited
        done = self._node.trained(start - self._begin) + 1
        self._due = self._begin + self._node.moment(done)
        time.sleep(max(0.0, self._due - time.perf_counter()))


def train_shared(
    units: Mapping[str, Unit], nodes: list[SimulatedNode], *, prefetch: int = 8, claim_ahead: int | None = None
) -> list[Trained]:
    """Run the shared queue over a folder, a process per node.

    Batches are a hundred times shorter here than in training, so the folder lies in memory where it can: a claim then
    costs a fraction of a batch, as it does with real batches and a real store.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        url = Path(folder).as_uri()
        return _run(nodes, (_shared, (url, units, prefetch, claim_ahead)))


def train_split(units: Mapping[str, Unit], nodes: list[SimulatedNode]) -> list[Trained]:
    """Give each node its own lane from the start, and run that."""
    return _run(nodes, (_split, (units,)))


Job = tuple[Callable[..., tuple[int, int, float]], tuple[object, ...]]


def _run(nodes: list[SimulatedNode], job: Job) -> list[Trained]:
    begin = time.perf_counter() + START_SECONDS
    with ProcessPoolExecutor(len(nodes), mp_context=multiprocessing.get_context("fork")) as pool:
        running = [pool.submit(_node, node, index, job, begin) for index, node in enumerate(nodes)]
        return [node.result() for node in running]


def _node(node: SimulatedNode, index: int, job: Job, begin: float) -> Trained:
    work, arguments = job
    own = begin + index * STAGGER_SECONDS
    time.sleep(max(0.0, own - time.perf_counter()))
    units, batches, waited = work(Pace(node, own), index, *arguments)
    return Trained(node.name, units, batches, time.perf_counter() - begin, waited)


def _load(unit: Unit) -> range:
    return range(unit.first, unit.first + unit.count)


def _shared(
    pace: Pace, index: int, url: str, units: Mapping[str, Unit], prefetch: int, claim_ahead: int | None
) -> tuple[int, int, float]:
    queue = shared_queue(
        units, mailbox=open_mailbox(url), learner_id=f"{index}", load=_load, prefetch=prefetch, claim_ahead=claim_ahead
    )
    with queue as batches:
        for _ in batches:
            pace.batch(queue.statistics.wait_seconds)
    counts = queue.statistics
    return counts.claimed, counts.batches, counts.wait_seconds


def _split(pace: Pace, index: int, units: Mapping[str, Unit]) -> tuple[int, int, float]:
    mine = [unit for unit in units.values() if unit.lane == index]
    for unit in mine:
        for _ in _load(unit):
            pace.batch()
    return len(mine), sum(unit.count for unit in mine), 0.0
