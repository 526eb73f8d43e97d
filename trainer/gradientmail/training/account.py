"""What a node has done so far, and what it is doing: written by the training loop, read by everyone else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeVar

from gradientmail.patterns.shared_queue import QueueStatistics
from gradientmail.progress import ExchangeCounts, ExchangeProgress, NodeProgress, Phase

if TYPE_CHECKING:
    from gradientmail.exchange.statistics import ExchangeStatistics

BatchT = TypeVar("BatchT")

IDLE_SECONDS = 60.0
"""How long the loop may wait for data once nothing loads any more."""

Doing = Literal["starting", "waiting", "training", "evaluating", "leaving"]


@dataclass(frozen=True, slots=True)
class Activity:
    """What the main thread is doing since when (seconds of a monotonic clock)."""

    doing: Doing
    since: float

    def alive(self, *, now: float, loading: bool, stall_seconds: float) -> bool:
        """Whether the node makes progress: `loading` says that the queue's thread claims and loads."""
        match self.doing:
            case "starting" | "leaving":
                return True
            case "waiting":
                return loading or now - self.since < IDLE_SECONDS
            case _:
                return now - self.since < stall_seconds


class Account:
    """A node's running totals. One thread writes; any thread may ask for `progress`.

    Nothing here waits but for a lock that is held while two numbers are read or written.
    """

    def __init__(
        self,
        learner: str,
        node: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phase: Phase = "starting"
        self.message = ""
        self.batches = 0
        self.samples = 0
        self.step: int | None = None
        self.loss: float | None = None
        self.held_out_loss: float | None = None
        self.queue: Callable[[], QueueStatistics] = QueueStatistics
        self.exchange: Callable[[], ExchangeStatistics | None] = lambda: None
        self.final_held_out_loss: float | None = None
        self._learner = learner
        self._node = node
        self._clock = clock
        self._monotonic = monotonic
        self._trained_seconds = 0.0
        self._lock = threading.Lock()
        self.activity = Activity("starting", monotonic())

    def now(self) -> float:
        """Return the time on the clock of `activity`."""
        return self._monotonic()

    def doing(self, what: Doing) -> None:
        """Note what the main thread does from now on. Time spent training is added up."""
        with self._lock:
            now = self._monotonic()
            self._trained_seconds += self._training_for(now)
            self.activity = Activity(what, now)

    @property
    def train_seconds(self) -> float:
        """Time spent on batches, the one under way included, as the queue's wait is. Never falls."""
        with self._lock:  # else a batch that ends meanwhile could be counted longer than it has been
            return self._trained_seconds + self._training_for(self._monotonic())

    def _training_for(self, now: float) -> float:
        return now - self.activity.since if self.activity.doing == "training" else 0.0

    def trained(self, *, step: int, samples: int) -> None:
        """Add a batch."""
        self.batches += 1
        self.samples += samples
        self.step = step

    def watched(self, batches: Iterable[BatchT]) -> Iterator[BatchT]:
        """Yield the batches; note when the loop waits for one, and for how long it has it."""
        self.doing("waiting")
        for batch in batches:
            self.doing("training")
            yield batch
            self.doing("waiting")

    def progress(self) -> NodeProgress:
        """Return the record of this moment."""
        queue = self.queue()
        return NodeProgress(
            learner=self._learner,
            node=self._node,
            time=self._clock(),
            phase=self.phase,
            claimed=queue.claimed,
            consumed=queue.consumed,
            conflicts=queue.conflicts,
            batches=self.batches,
            samples=self.samples,
            step=self.step,
            loss=self.loss,
            held_out_loss=self.held_out_loss,
            buffered=queue.buffered,
            wait_seconds=round(queue.wait_seconds, 3),
            train_seconds=round(self.train_seconds, 3),
            message=self.message,
            exchange=self._exchanged(),
        )

    def _exchanged(self) -> ExchangeProgress | None:
        exchange = self.exchange()
        if exchange is None:
            return None
        counts = {field.name: getattr(exchange, field.name) for field in fields(ExchangeCounts)}
        counts["blocked_seconds"] = round(exchange.blocked_seconds, 3)
        return ExchangeProgress(
            **counts, final_held_out_loss=self.final_held_out_loss if exchange.final_samples else None
        )
