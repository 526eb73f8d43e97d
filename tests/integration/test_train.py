"""A node of a run, in this process: from the first claim to the last word."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from gradientmail.cli import explained
from gradientmail.exits import Exit, PrefixInUse, UserError
from gradientmail.layout import FINAL, beat_key, left_key, model_key
from gradientmail.mailbox import MailboxUnavailable
from gradientmail.mailbox.base import Store
from gradientmail.mailbox.faults import Fault, FaultyStore
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.manifest import run_from_object
from gradientmail.progress import NodeProgress, Receipt
from gradientmail.run import GradientRun
from gradientmail.training.interruption import Interruption
from gradientmail.training.logs import logging_to
from gradientmail.training.node import NodeOptions
from gradientmail.training.program import Node, OutOfMemory
from tests.integration import tiny_task
from tests.promtool import Promtool
from tests.waiting import until


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Have something done, once, in the middle of the first batch of a dataset step."""

    def put(step: int, act: Callable[[], object]) -> None:
        waiting = [act]
        monkeypatch.setattr(tiny_task, "hook", lambda now: waiting.pop()() if now == step and waiting else None)

    return put


def run(name: str = "first", trainer: dict[str, Any] | None = None, **data: Any) -> GradientRun:
    return run_from_object(
        {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": name},
            "spec": {
                "data": {"steps": 12, "batch": 8, "lanes": 2, "unitSteps": 3, **data},
                "trainer": {"task": "tests.integration.tiny_task:task", "microBatch": 2, "logEvery": 4}
                | (trainer or {}),
                "nodes": [{"name": "a", "replicas": 2}],
            },
        }
    )


class Trial:
    """One node and all that it left behind."""

    def __init__(self, tmp_path: Path, box: Store | None = None, manifest: GradientRun | None = None) -> None:
        self.box = box or MemoryStore()
        self.manifest = manifest or run()
        self.message = tmp_path / "termination-log"
        self.stream = io.StringIO()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def train(self, node: str = "a-0", learner: str = "l0", **options: Any) -> Exit:
        told = NodeOptions(node, learner, "memory:", log_format="json", termination_message=self.message, **options)
        with Interruption(30.0) as interruption, logging_to(self.stream, "json", node):
            return Node(self.manifest, told, interruption, explained, opening=lambda url, s3: self.box).run()

    def left(self, learner: str = "l0") -> NodeProgress:
        found = self.box.get(left_key(learner))
        assert found is not None
        return NodeProgress.from_json(found)

    def told(self) -> NodeProgress:
        return NodeProgress.from_json(self.message.read_bytes())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]


def test_a_node_on_its_own_trains_everything(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    assert trial.train() is Exit.OK
    left = trial.left()
    assert (left.phase, left.claimed, left.consumed, left.conflicts) == ("finished", 8, 8, 0)
    assert (left.batches, left.samples, left.step) == (24, 24 * 4 * 4, 11)
    assert trial.told() == left
    assert len(list(trial.box.list("units/"))) == len(list(trial.box.list("consumed/"))) == 8
    receipt = Receipt.from_json(trial.box.get("consumed/000000-0.json") or b"")
    assert (receipt.learner, receipt.batches) == ("l0", 3)


@pytest.mark.parametrize(("mode", "key"), [("Solo", model_key("l0")), ("Asynchronous", FINAL)])
def test_what_lies_in_the_mailbox_afterwards(tmp_path: Path, mode: str, key: str) -> None:
    trial = Trial(tmp_path, manifest=run(trainer={"exchange": {"mode": mode}}))
    trial.train()
    registered, beat = trial.box.list("alive/")
    assert registered == beat_key("l0", 0)
    assert NodeProgress.from_json(trial.box.get(beat) or b"").phase == "finished"
    assert list(trial.box.list("model/")) == [key]
    assert (next(trial.box.list("exchange/"), None) is None) is (mode == "Solo")
    table = load(trial.box.get(key) or b"")
    assert {name: tuple(tensor.shape) for name, tensor in table.items()} == {"table.weight": (16, 16)}


def test_lines_say_what_happened(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.train()
    assert {line["unit"] for line in trial.events("unit-claimed")} == {
        f"{group:06d}-{lane}.json" for group in range(4) for lane in range(2)
    }
    assert len(trial.events("unit-consumed")) == 8
    steps = [line for line in trial.events("progress") if line["message"].startswith("step:")]
    assert [line["progress"]["batches"] for line in steps] == [4, 8, 12, 16, 20, 24]
    assert trial.lines[-1]["message"] == "finished: 8 units, 24 batches"
    assert trial.lines[-1]["progress"]["phase"] == "finished"


def test_held_out_loss_at_the_start_every_so_often_and_at_the_end(tmp_path: Path) -> None:
    trial = Trial(tmp_path, manifest=run(trainer={"evaluateEvery": 10}))
    trial.train()
    losses = [line["loss"] for line in trial.events("held-out")]
    assert losses == sorted(losses, reverse=True)
    assert trial.left().held_out_loss == losses[-1]
    messages = [line["message"].partition(" after ")[2] for line in trial.events("held-out")]
    assert messages == ["0 batches", "10 batches", "20 batches", "24 batches"]


def test_two_nodes_share_the_work(tmp_path: Path) -> None:
    box = MemoryStore()
    gate = threading.Barrier(2, timeout=30)
    codes: list[Exit] = []

    def train(index: int) -> None:
        options = NodeOptions(f"a-{index}", f"l{index}", "memory:")
        node = Node(run(steps=60), options, Interruption(30.0), explained, opening=lambda url, s3: box)
        gate.wait()
        codes.append(node.run())

    threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert codes == [Exit.OK, Exit.OK]
    left = [NodeProgress.from_json(box.get(left_key(f"l{index}")) or b"") for index in range(2)]
    assert sum(each.consumed for each in left) == 40
    assert sum(each.batches for each in left) == 120


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(signal.SIGTERM, Exit.TERMINATED, "SIGTERM"), (signal.SIGINT, Exit.INTERRUPTED, "SIGINT")],
)
def test_signal_ends_the_node_after_the_current_batch(
    tmp_path: Path, at_step: Callable[..., None], number: signal.Signals, code: Exit, name: str
) -> None:
    stopped = threading.Event()

    def interrupt() -> None:
        os.kill(os.getpid(), number)
        assert stopped.wait(30)

    at_step(4, interrupt)
    trial = Trial(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "_train", announcing(Node._train, stopped))
        assert trial.train() is code
    left = trial.left()
    # Units 000000-0 and 000000-1 take three batches each; step 4 is the eighth batch, in the third unit.
    assert (left.phase, left.batches, left.step, left.consumed) == ("stopped", 8, 4, 2)
    assert left.message == f"stopped by {name}"
    assert trial.told() == left
    assert sorted(trial.box.list("consumed/")) == ["consumed/000000-0.json", "consumed/000000-1.json"]
    assert trial.box.get(model_key("l0")) is None


def announcing(method: Callable[..., None], stopped: threading.Event) -> Callable[..., None]:
    """Tell the test once the node's thread for signals has asked the queue to stop."""

    def wrapped(node: Node, *args: Any) -> None:
        def train(*inner: Any) -> None:
            method(node, *inner)

        queue = args[1]
        stop = queue.stop

        def stop_and_tell() -> None:
            stop()
            stopped.set()

        queue.stop = stop_and_tell
        train(*args)

    return wrapped


def test_task_that_raises_ends_the_node_with_its_traceback(tmp_path: Path, at_step: Callable[..., None]) -> None:
    def fail() -> None:
        raise KeyError("own code")

    at_step(3, fail)
    trial = Trial(tmp_path)
    assert trial.train() is Exit.FAILED
    (failure,) = trial.events("failed")
    assert failure["message"] == "KeyError: 'own code'"
    assert "tiny_task.py" in failure["traceback"]
    assert (trial.left().phase, trial.left().message) == ("failed", "KeyError: 'own code'")
    assert trial.told().phase == "failed"
    assert trial.box.get(model_key("l0")) is None


def test_task_that_exits_has_not_finished_its_run(tmp_path: Path, at_step: Callable[..., None]) -> None:
    def leave() -> None:
        raise SystemExit(0)

    at_step(3, leave)
    trial = Trial(tmp_path)
    assert trial.train() is Exit.FAILED
    assert (trial.left().phase, trial.left().message) == ("failed", "SystemExit: 0")


def test_gpu_out_of_memory_is_named_and_not_a_mistake_of_the_manifest(
    tmp_path: Path, at_step: Callable[..., None]
) -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")

    at_step(0, fail)
    trial = Trial(tmp_path)
    with pytest.raises(OutOfMemory) as error:
        trial.train()
    assert str(error.value) == (
        "the GPU's memory does not hold a micro-batch of 2 sequences: lower spec.trainer.microBatch, "
        "or use a smaller model (CUDA out of memory. Tried to allocate 20.00 GiB.)"
    )
    assert error.value.exit is Exit.FAILED
    assert trial.told().message == str(error.value)


def test_store_that_stays_away_ends_the_node_after_what_is_buffered(tmp_path: Path) -> None:
    box = FaultyStore(MemoryStore(), Fault("unavailable", keys="units/*", operations=("put_if_absent",), skip=3))
    trial = Trial(tmp_path, box, run(trainer={"outageSeconds": 0}))
    with pytest.raises(MailboxUnavailable):
        trial.train()
    told = trial.told()
    assert (told.phase, told.claimed, told.consumed, told.batches) == ("failed", 3, 3, 9)
    assert "the store has not answered" in told.message


def test_heartbeats_that_fail_do_not_end_the_node(tmp_path: Path) -> None:
    box = FaultyStore(MemoryStore(), Fault("unavailable", keys="alive/l0/00000000[0-9][1-9]"))
    trial = Trial(tmp_path, box)
    assert trial.train() is Exit.OK
    assert any("heartbeat" in line["message"] for line in trial.lines)


def test_another_runs_prefix_is_left_as_it_is(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.box.put_if_absent("units/000000-0.json", b"other")
    with pytest.raises(PrefixInUse):
        trial.train()
    assert list(trial.box.list()) == ["units/000000-0.json"]
    assert trial.told().phase == "failed"
    assert trial.train(join=True) is Exit.OK
    assert trial.left().consumed == 7


def test_learner_of_another_process_is_refused_and_not_spoken_for(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.box.put_if_absent(beat_key("l0", 0), b"other process")
    with pytest.raises(UserError, match="learner ID 'l0' has been used under this prefix by another process"):
        trial.train()
    assert trial.box.get(left_key("l0")) is None


def test_learner_taken_while_the_task_is_built_is_not_spoken_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path)
    queue = Node._queue

    def late(node: Node, *args: Any) -> Any:
        trial.box.put_if_absent(beat_key("l0", 0), b"other process")
        return queue(node, *args)

    monkeypatch.setattr(Node, "_queue", late)
    with pytest.raises(UserError, match="learner ID 'l0' has been used under this prefix by another process"):
        trial.train()
    assert trial.box.get(left_key("l0")) is None


def test_short_dataset_says_how_many_steps_it_serves(tmp_path: Path) -> None:
    trial = Trial(tmp_path, manifest=run(trainer={"args": {"available": 95}}))
    with pytest.raises(UserError, match="enough for 11 steps of 8 sequences, but the run needs 12 steps"):
        trial.train()
    assert list(trial.box.list("units/")) == []


def test_metrics_and_probes_during_the_run(tmp_path: Path, at_step: Callable[..., None], promtool: Promtool) -> None:
    trial = Trial(tmp_path)
    seen: dict[str, str] = {}

    def read(path: str) -> str:
        port = trial.events("serving")[0]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def scrape() -> None:
        # Receipts are written by a thread of their own.
        receipts = re.compile(r"^gradientmail_units_consumed_total\S+ 2\.0$", re.MULTILINE)
        until(
            lambda: receipts.search(read("/metrics")), "two receipts", every_seconds=0.05, seen=lambda: read("/metrics")
        )
        seen.update({path: read(path) for path in ("/metrics", "/livez", "/readyz")})

    at_step(4, scrape)
    assert trial.train(metrics_port=0) is Exit.OK
    assert (seen["/livez"], seen["/readyz"]) == ("ok\n", "ok\n")
    labels = 'namespace="default",node="a-0",run="first"'
    for line in (
        f"gradientmail_units{{{labels}}} 8.0",
        f"gradientmail_units_consumed_total{{{labels}}} 2.0",
        f"gradientmail_batches_total{{{labels}}} 7.0",
        f"gradientmail_samples_total{{{labels}}} 112.0",
        f"gradientmail_step{{{labels}}} 3.0",
    ):
        assert line in seen["/metrics"]
    assert 'operation="put_if_absent",outcome="ok",run="first"' in seen["/metrics"]
    assert promtool.check_metrics(seen["/metrics"]) == ""


def test_slowed_node_sleeps_and_a_signal_ends_its_sleep(tmp_path: Path, at_step: Callable[..., None]) -> None:
    at_step(0, lambda: threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start())
    trial = Trial(tmp_path)
    assert trial.train(slowdown=1e6) is Exit.TERMINATED
    assert trial.left().batches == 1
