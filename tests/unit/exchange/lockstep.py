"""Learners with real tensors and real blobs, without threads: each does exactly what the test says, when it says it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from gradientmail.exchange.assembling import totals
from gradientmail.exchange.blobs import BlobStore
from gradientmail.exchange.closing import Timing
from gradientmail.exchange.driver import Driver
from gradientmail.exchange.joining import found_or_read, join
from gradientmail.exchange.learner import Learner
from gradientmail.exchange.parameters import Parameters
from gradientmail.exchange.records import Agreement
from gradientmail.exchange.replica import Replica
from gradientmail.exchange.requests import Adopt, Answer, Instruction, Refused, Request, Take
from gradientmail.mailbox import Mailbox
from gradientmail.patterns.retrying import Patience

PATIENCE = 10.0


@dataclass
class Clock:
    """Seconds that advance when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Node:
    """One learner that has joined."""

    name: str
    model: nn.Module
    box: Mailbox
    agreement: Agreement
    clock: Clock
    refused: list[str] = field(default_factory=list)
    adopted: list[Adopt] = field(default_factory=list)

    def __post_init__(self) -> None:
        parameters = Parameters(self.model, self.agreement.fragments)
        self.blobs = BlobStore(self.box, parameters.layout)
        self.replica = Replica(self.name, parameters, self.blobs, self.agreement)
        patience = Patience(0.0, lambda _: False)
        self.driver = Driver(self.box, self.replica, patience, contextlib.nullcontext(), self._told)
        founding = self.driver.hold(found_or_read(self.name, self.agreement, parameters.layout))
        anchors = self.driver.hold(join(self.name, f"process of {self.name}", founding, RuntimeError))
        self.replica.start()
        self.learner = Learner(self.name, founding, anchors, Timing(PATIENCE, PATIENCE), self.clock)

    def _told(self, request: Request, _: Answer) -> None:
        if isinstance(request, Refused):
            self.refused.append(request.key)

    def step(self, train: Callable[[nn.Module], None], samples: int = 1) -> None:
        """One optimizer step and what the session does in it."""
        with torch.no_grad():
            train(self.model)
        self._obey(self.learner.stepped(samples))

    def adopt(self) -> None:
        """Take over what is ready, without a step."""
        self._obey(self.learner.stepped(0))

    def talk(self) -> None:
        """Let the background thread do all that it can do now."""
        while self.driver.hold(self.learner.tick()):
            pass

    def _obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Take(fragment):
                    self.replica.take(fragment)
                case Adopt(fragment, adoption):
                    self.replica.adopt(fragment, adoption)
                    self.adopted.append(instruction)

    @property
    def versions(self) -> list[int]:
        return [chain.anchor.version for chain in self.learner.chains]

    @property
    def merged_steps(self) -> int:
        return totals(tuple(chain.anchor for chain in self.learner.chains)).work.steps


def settle(nodes: list[Node], rounds: int = 4) -> None:
    """Let all talk and adopt until nothing more comes of it."""
    for _ in range(rounds):
        for node in nodes:
            node.talk()
        for node in nodes:
            node.adopt()
