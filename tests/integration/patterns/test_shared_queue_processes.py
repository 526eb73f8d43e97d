"""Nodes as processes: each unit is trained by exactly one, whatever the start method, whoever is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from gradientmail import Mailbox, Unit, first_lane, grid, open_mailbox
from gradientmail.mailbox import S3Options
from gradientmail.patterns.shared_queue import SharedQueue, shared_queue

UNITS = grid(steps=60, unit_steps=3, lanes=4)
BOUND_SECONDS = 60.0


def load(unit: Unit) -> Iterator[tuple[int, int]]:
    """Load (step, lane) pairs."""
    return ((step, unit.lane) for step in range(unit.first, unit.first + unit.count))


def opened(url: str, endpoint: str | None) -> Mailbox:
    return open_mailbox(url, s3=S3Options(endpoint_url=endpoint))


def train(url: str, endpoint: str | None, index: int) -> list[tuple[int, int]]:
    """One node: train what the queue gives and return what it was."""
    units = first_lane(UNITS, index)
    learner = f"node-{index}"
    with shared_queue(units, mailbox=opened(url, endpoint), learner_id=learner, load=load, prefetch=2) as batches:
        return list(batches)


def killed_in_the_middle(url: str, index: int) -> None:
    """One node that dies by SIGKILL in its second unit."""
    box = open_mailbox(url)
    with shared_queue(UNITS, mailbox=box, learner_id=f"node-{index}", load=load, prefetch=1) as batches:
        for number, _ in enumerate(batches):
            if number == 4:
                os.kill(os.getpid(), signal.SIGKILL)


def run_nodes(context: BaseContext, url: str, count: int, endpoint: str | None = None) -> list[tuple[int, int]]:
    """Return the batches of all nodes; a node that dies fails the test at once."""
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        nodes = [pool.submit(train, url, endpoint, index) for index in range(count)]
        return [batch for node in nodes for batch in node.result(BOUND_SECONDS)]


def assert_each_batch_once(trained: list[tuple[int, int]]) -> None:
    assert Counter(trained) == Counter((step, lane) for step in range(60) for lane in range(4))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_processes_on_a_folder_train_each_batch_once(method: str, tmp_path: Path) -> None:
    trained = run_nodes(multiprocessing.get_context(method), tmp_path.as_uri(), 4)
    assert_each_batch_once(trained)
    assert len(list(open_mailbox(tmp_path.as_uri()).list("consumed/"))) == len(UNITS)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_processes_on_s3_train_each_batch_once(method: str, s3_server: str, bucket: str) -> None:
    trained = run_nodes(multiprocessing.get_context(method), f"s3://{bucket}/runs/first", 3, s3_server)
    assert_each_batch_once(trained)


def test_what_a_killed_node_had_claimed_is_lost_and_nothing_else(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    victim = context.Process(target=killed_in_the_middle, args=(tmp_path.as_uri(), 9))
    victim.start()
    victim.join(BOUND_SECONDS)
    assert victim.exitcode == -signal.SIGKILL
    box = open_mailbox(tmp_path.as_uri())
    held = {key.removeprefix("units/") for key in box.list("units/")}
    trained = run_nodes(context, tmp_path.as_uri(), 2)
    expected = {(step, unit.lane) for name, unit in UNITS.items() if name not in held for step, _ in load(unit)}
    assert set(trained) == expected
    claimed = {key.removeprefix("units/") for key in box.list("units/")}
    consumed = {key.removeprefix("consumed/") for key in box.list("consumed/")}
    assert claimed == set(UNITS)
    assert claimed - consumed <= held


def test_a_queue_taken_into_a_forked_child_says_what_to_do(tmp_path: Path) -> None:
    queue: SharedQueue[tuple[int, int]] = shared_queue(
        UNITS, mailbox=open_mailbox(tmp_path.as_uri()), learner_id="parent", load=load
    )
    with queue:
        child = os.fork()
        if child == 0:
            try:
                next(queue)
            except RuntimeError as error:
                os._exit(0 if "make one in each process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
