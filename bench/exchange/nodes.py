"""Nodes in virtual time: the real protocol, merges and wire format, with the clock and the threads simulated.

A node's background thread makes one request per `latency`, or all that are made together; an optimizer
step takes what the node's speed says. Nothing here sleeps, so thousands of steps of many nodes fit into
minutes on one core.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gradientmail.exchange.blobs import BlobStore
from gradientmail.exchange.closing import Timing
from gradientmail.exchange.joining import found_or_read, join
from gradientmail.exchange.learner import Learner
from gradientmail.exchange.parameters import Parameters, named_views
from gradientmail.exchange.records import Agreement, Founding
from gradientmail.exchange.replica import Replica
from gradientmail.exchange.requests import (
    Adopt,
    Answer,
    Conversation,
    Create,
    Fetch,
    Found,
    ListKeys,
    Merge,
    Publish,
    Read,
    Refused,
    Remove,
    Request,
    Take,
    Together,
)
from gradientmail.mailbox.memory import MemoryStore

Optimize = Callable[[nn.Module, torch.optim.Optimizer, int, Tensor], None]


@dataclass
class Clock:
    """Events in the order of their time."""

    now: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._count), event))

    def run(self) -> None:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


@dataclass(frozen=True)
class Network:
    """How fast a node talks to the store, in virtual seconds."""

    latency: float
    poll: float


@dataclass
class SimulatedNode:
    """One learner that trains units until there are none, and exchanges as a Session does."""

    name: str
    clock: Clock
    store: MemoryStore
    model: nn.Module
    optimizer: torch.optim.Optimizer
    agreement: Agreement
    step_seconds: float
    work: Iterator[tuple[int, Tensor]]
    optimize: Optimize
    network: Network
    timing: Timing
    dies_at: float = float("inf")
    trained: Callable[[Tensor], None] = lambda _: None
    steps: int = 0
    staleness: list[int] = field(default_factory=list)
    left: bool = False
    dead: bool = False
    learner: Learner | None = None
    _conversation: Conversation[object] | None = None
    _founding: Founding | None = None
    _pending: tuple[int, Tensor] | None = None

    def __post_init__(self) -> None:
        parameters = Parameters(self.model, self.agreement.fragments)
        self.blobs = BlobStore(self.store, parameters.layout)
        self.layout = parameters.layout
        self.replica = Replica(self.name, parameters, self.blobs, self.agreement)
        self._conversation = found_or_read(self.name, self.agreement, self.layout)
        self.clock.after(0.0, lambda: self._talk(None))

    # Training.

    def _take_batch(self) -> None:
        self._pending = next(self.work, None)
        if self._pending is None:
            assert self.learner is not None
            self.learner.leaving = True
        else:
            self.clock.after(self.step_seconds, self._train)

    def _train(self) -> None:
        assert self._pending is not None
        assert self.learner is not None
        if self.clock.now >= self.dies_at:
            self.dead = True
            return
        step, batch = self._pending
        self.optimize(self.model, self.optimizer, step, batch)
        self.steps += 1
        self._obey(len(batch))
        self.trained(batch)
        self._take_batch()

    def _obey(self, samples: int) -> None:
        assert self.learner is not None
        for instruction in self.learner.stepped(samples):
            match instruction:
                case Take(fragment):
                    self.replica.take(fragment)
                case Adopt(fragment, adoption):
                    self.staleness.append(adoption.staleness)
                    self.replica.adopt(fragment, adoption)

    # The background thread.

    def _talk(self, answer: Answer | tuple[Answer, ...]) -> None:
        if self.dead:
            return
        assert self._conversation is not None
        try:
            request = self._conversation.send(answer)
        except StopIteration as end:
            self._ended(end.value)
            return
        self.clock.after(self.network.latency, lambda: self._talk(self._answered(request)))

    def _answered(self, request: Request | Together) -> Answer | tuple[Answer, ...]:
        if isinstance(request, Together):
            return tuple(self._served(each) for each in request.requests)
        return self._served(request)

    def _ended(self, value: object) -> None:
        pause = 0.0
        match value:
            case Founding():
                self._founding = value
                self._conversation = join(self.name, f"process of {self.name}", value, RuntimeError)
            case tuple():
                assert self._founding is not None
                self.replica.start()
                self.learner = Learner(self.name, self._founding, value, self.timing, lambda: self.clock.now)
                self._take_batch()
                self._conversation = self.learner.tick()
            case _:
                pause = self._ticked(value is True)
        if not self.left:
            self.clock.after(pause, lambda: self._talk(None))

    def _ticked(self, acted: bool) -> float:
        assert self.learner is not None
        if self.learner.leaving:
            self._obey(0)
            self.left = self.learner.settled
        self._conversation = self.learner.tick()
        return 0.0 if acted else self.network.poll

    def _served(self, request: Request) -> Answer:
        match request:
            case ListKeys(prefix, after):
                return list(self.store.list(prefix, after=after))
            case Read(key):
                return self.store.get(key)
            case Create(key, data):
                self.store.put_if_absent(key, data)
            case Remove(keys):
                self.store.delete(keys)
            case Found() | Fetch() | Publish() | Merge():
                return self.replica.serve(request)
            case Refused(key, why):
                raise AssertionError(f"{key}: {why}")
        return None


def newest(nodes: list[SimulatedNode]) -> dict[str, Tensor]:
    """Return the newest version of every fragment that any node holds, by parameter."""
    layout = nodes[0].layout
    flats: list[Tensor] = []
    for fragment in range(len(layout)):
        holders = [node for node in nodes if node.learner is not None]
        best = max(holders, key=lambda node: node.learner.chains[fragment].anchor.version if node.learner else -1)
        flats.append(best.replica.anchors[fragment])
    return named_views(flats, layout)
