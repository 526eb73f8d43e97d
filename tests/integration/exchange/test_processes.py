"""Nodes as processes on one file store: one is ten times slower, one dies, one joins late, and the store goes away."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn

from gradientmail.exchange import Session
from gradientmail.exchange.assembling import metadata_of, newest_model
from gradientmail.exchange.keys import MEMBERS
from gradientmail.mailbox import Mailbox, MailboxUnavailable, open_mailbox

BOUND_SECONDS = 90.0


class Outages:
    """A store that does not answer while a file exists."""

    def __init__(self, inner: Mailbox, flag: Path) -> None:
        self._inner = inner
        self._flag = flag

    def _check(self) -> None:
        if self._flag.exists():
            raise MailboxUnavailable("the store is down")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._check()
        return self._inner.put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self._check()
        return self._inner.get(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        self._check()
        return self._inner.list(prefix, after=after)

    def delete(self, keys: Iterable[str]) -> None:
        self._check()
        self._inner.delete(keys)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    loss: Tensor = (model(inputs) - inputs[:, :1] * inputs[:, 1:2]).square().mean()
    return loss


def train(folder: Path, learner: str, step_seconds: float, line: Connection) -> None:
    """A node: fits a product until it is let go; sends its counts every ten steps, and at the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(int(learner[-1]))
    box = Outages(open_mailbox((folder / "run").as_uri()), folder / "outage")
    options: dict[str, Any] = {"sync_every": 10, "fragments": 2, "patience_seconds": 2.0, "poll_seconds": 0.02}
    with Session(model, mailbox=box, learner_id=learner, **options) as session:
        while not let_go(folder, learner).exists():
            torch.autograd.backward(loss_of(model, torch.randn(32, 8, generator=generator)))
            optimizer.step()
            optimizer.zero_grad()
            session.step(samples=32)
            time.sleep(step_seconds)
            if session.statistics.steps % 10 == 0:
                line.send(session.statistics)
    line.send(session.statistics)


def let_go(folder: Path, learner: str) -> Path:
    """Return the file that ends a node's training."""
    return folder / f"{learner} may go"


@dataclass
class Node:
    """A node's process, and what it says."""

    may_go: Path
    process: BaseProcess
    line: Connection

    @classmethod
    def start(cls, folder: Path, name: str, *, step_seconds: float) -> Node:
        context = multiprocessing.get_context("fork")
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=train, args=(folder, name, step_seconds, theirs))
        process.start()
        theirs.close()
        return cls(let_go(folder, name), process, mine)

    def forget(self) -> None:
        """Forget the counts told so far, and not read yet."""
        while self.line.poll():
            self.line.recv()

    def told(self) -> Any:
        """Wait for the node's next counts."""
        assert self.line.poll(BOUND_SECONDS)
        return self.line.recv()

    def until(self, holds: Callable[[Any], bool]) -> Any:
        """Wait until the node's counts meet a condition, and return them."""
        while not holds(told := self.told()):
            pass
        return told

    def end(self) -> Any:
        """Let the node go, and wait for its end; return its last counts."""
        self.may_go.touch()
        last = None
        while True:
            try:
                last = self.told()
            except EOFError:
                self.process.join(BOUND_SECONDS)
                assert self.process.exitcode == 0
                return last


@pytest.mark.timeout(600)  # for machines that are busy; it takes five seconds on one that is not
def test_the_run_goes_on_whatever_happens_to_its_nodes_and_its_store(tmp_path: Path) -> None:
    begun = time.monotonic()
    fast = Node.start(tmp_path, "node-0", step_seconds=0.005)
    slow = Node.start(tmp_path, "node-1", step_seconds=0.05)
    doomed = Node.start(tmp_path, "node-2", step_seconds=0.005)
    nodes = [fast, slow, doomed]
    try:
        doomed.until(lambda told: min(told.versions) >= 2)
        doomed.process.kill()
        late = Node.start(tmp_path, "node-3", step_seconds=0.005)
        nodes.append(late)
        assert min(late.told().versions) >= 2, "a late node starts from the newest versions"
        (tmp_path / "outage").touch()
        fast.forget()
        before = fast.told()
        fast.until(lambda told: told.steps >= before.steps + 100)  # training goes on while the store is away
        (tmp_path / "outage").unlink()
        for node in (slow, late, fast):
            node.until(lambda told: told.merged > 2)
        fast.until(lambda told: told.steps >= 600)
        ends = [node.end() for node in (slow, late, fast)]
        lasted = time.monotonic() - begun
    finally:
        for node in nodes:
            node.process.kill()
            node.process.join()
            node.line.close()
    box = open_mailbox((tmp_path / "run").as_uri())
    data, final = newest_model(box)
    assert final
    told = metadata_of(data)
    steps = {name: share["steps"] for name, share in json.loads(told["contributors"]).items()}
    assert [steps[name] for name in ("node-1", "node-3", "node-0")] == [end.steps for end in ends]
    assert int(told["samples"]) == 32 * int(told["steps"]) == 32 * sum(steps.values())
    assert max(end.blocked_seconds for end in ends) < lasted / 5, "nobody waits for the others, or for the store"
    assert list(box.list(MEMBERS)) == [f"{MEMBERS}node-2"], "only the dead node never left"
    model = network()
    model.load_state_dict(load(data))
    inputs = torch.randn(2000, 8, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        trained, untrained = loss_of(model, inputs).item(), loss_of(network(), inputs).item()
    assert trained < untrained / 2, "how much the nodes learned from each other depends on when their rounds met"
