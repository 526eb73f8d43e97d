"""A small model with every kind of parameter and a mailbox that can fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gradientmail.exchange.blobs import BlobStore
from gradientmail.exchange.driver import Driver
from gradientmail.exchange.parameters import Parameters
from gradientmail.exchange.records import Agreement
from gradientmail.exchange.replica import Replica
from gradientmail.mailbox import Mailbox, MailboxUnavailable
from gradientmail.patterns.retrying import Patience

BOUND_SECONDS = 30.0
AGREEMENT = Agreement(1, 1, 1.0, 0.0, "float32")

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


class Small(nn.Module):
    """Tied, frozen, half-precision and ordinary parameters, and a buffer."""

    counted: Tensor

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, width)
        self.middle = nn.Linear(width, width).to(torch.bfloat16)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 8, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("counted", torch.zeros(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.middle(x.bfloat16()).float() + self.frozen(x)
        logits: Tensor = self.head(x)
        return logits


@dataclass
class Faulty:
    """A mailbox whose store can be stopped, held, or made to lose answers; and that counts objects."""

    inner: Mailbox
    stopped: bool = False
    lose_answers: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    calls: list[tuple[str, str]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate.set()

    def _before(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        self.threads.add(threading.current_thread().name)
        assert self.gate.wait(BOUND_SECONDS)
        if self.stopped:
            raise MailboxUnavailable("the store is stopped")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._before("put_if_absent", key)
        created = self.inner.put_if_absent(key, data)
        if self.lose_answers and created:
            raise MailboxUnavailable("the answer was lost")
        return created

    def get(self, key: str) -> bytes | None:
        self._before("get", key)
        return self.inner.get(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        self._before("list", prefix)
        return self.inner.list(prefix, after=after)

    def delete(self, keys: Iterable[str]) -> None:
        self._before("delete", "")
        self.inner.delete(keys)


class Driven:
    """A learner's replica and its driver, without the protocol."""

    def __init__(self, box: Mailbox, model: Small, patience: Patience) -> None:
        self.parameters = Parameters(model, 1)
        blobs = BlobStore(box, self.parameters.layout, lambda request: self.driver.call(request))
        self.replica = Replica("node-0", self.parameters, blobs, AGREEMENT)
        self.driver = Driver(box, self.replica, patience, contextlib.nullcontext(), lambda _, __: None)
