"""What a node tells of its training: log lines, progress events, and a unit's claim and end."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch

from gradientmail.layout import FINAL
from gradientmail.patterns.shared_queue import QueueObserver
from gradientmail.training.account import Account
from gradientmail.training.logs import LogFormat, emit
from gradientmail.training.loop import Trained

PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment and the totals at it: two of them give the rates in between."""

    time: float
    samples: int = 0
    wait_seconds: float = 0.0


def step_line(trained: Trained, loss: float, before: Mark, now: Mark, memory: str = "") -> str:
    """Return the line of a logged step; tokens per second and the share of waiting are those since the line before."""
    elapsed = max(1e-9, now.time - before.time)
    rate = (now.samples - before.samples) / elapsed
    wait = min(1.0, (now.wait_seconds - before.wait_seconds) / elapsed)
    return (
        f"step: {trained.step:>5}  loss: {loss:7.4f}  lr: {trained.learning_rate:.4e}  "
        f"{memory}tps: {rate:,.0f}  wait: {100 * wait:.1f}%"
    )


class Reporter:
    """Writes log lines of one node. `step` and `held_out` are for the loop's thread, `tick` for any."""

    def __init__(
        self, account: Account, form: LogFormat, device: torch.device, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._account = account
        self._form = form
        self._device = device
        self._clock = clock
        self._before = self._mark()
        self._emitted = -math.inf
        self._lock = threading.Lock()

    def start(self) -> None:
        """Count rates from now on."""
        self._before = self._mark()

    def step(self, trained: Trained) -> None:
        """Report a step; waits until the device has its loss."""
        loss = float(trained.loss)
        self._account.loss = loss
        now = self._mark()
        self.progress(step_line(trained, loss, self._before, now, self._memory()))
        self._before = now
        if not math.isfinite(loss):
            emit("warning", f"the loss is {loss} at dataset step {trained.step}", logging.WARNING)

    def held_out(self, loss: float) -> None:
        """Report a loss on held-out data."""
        emit("held-out", f"held-out loss: {loss:.4f} after {self._account.batches} batches", loss=loss)

    def final_model(self, samples: int, loss: float | None) -> None:
        """Report that this node has written the run's final model, and its held-out loss if there is one."""
        how = "" if loss is None else f", held-out loss {loss:.4f}"
        emit("final-model", f"wrote {FINAL}: {samples:,} samples{how}", key=FINAL, samples=samples, loss=loss)

    def tick(self) -> None:
        """In JSON, report the progress unless that has just been done: readers expect it every second."""
        if self._form == "json" and self._clock() - self._emitted >= 0.9 * PROGRESS_SECONDS:
            self.progress("")

    def progress(self, message: str) -> None:
        """Write a line with the node's progress."""
        progress = self._account.progress()
        with self._lock:
            self._emitted = self._clock()
        emit("progress", message, step=progress.step, progress=asdict(progress))

    def _mark(self) -> Mark:
        return Mark(self._clock(), self._account.samples, self._account.queue().wait_seconds)

    def _memory(self) -> str:
        if self._device.type != "cuda":
            return ""
        peak = torch.cuda.max_memory_reserved(self._device)
        share = peak / torch.cuda.get_device_properties(self._device).total_memory
        return f"memory: {peak / 2**30:.2f}GiB({100 * share:.0f}%)  "


class UnitLines:
    """An observer of the queue that writes a line when a unit is claimed, and one when it is consumed."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def claimed(self, identifier: str, seconds: float) -> None:
        """See QueueObserver."""
        emit(
            "unit-claimed",
            f"claimed {identifier} in {1000 * seconds:.0f} ms",
            unit=identifier,
            seconds=round(seconds, 6),
        )

    def lost(self, identifier: str) -> None:
        """See QueueObserver."""
        emit("unit-lost", f"{identifier} belongs to another node", logging.DEBUG, unit=identifier)

    def loaded(self, identifier: str, batches: int, seconds: float) -> None:
        """See QueueObserver."""
        emit(
            "unit-loaded",
            f"loaded {identifier}: {batches} batches in {1000 * seconds:.0f} ms",
            logging.DEBUG,
            unit=identifier,
            seconds=round(seconds, 6),
        )

    def consumed(self, identifier: str) -> None:
        """See QueueObserver."""
        emit("unit-consumed", f"consumed {identifier}", unit=identifier, step=self._account.step)


class Everyone:
    """An observer that tells several others."""

    def __init__(self, observers: Sequence[QueueObserver]) -> None:
        self._observers = observers

    def claimed(self, identifier: str, seconds: float) -> None:
        """See QueueObserver."""
        for observer in self._observers:
            observer.claimed(identifier, seconds)

    def lost(self, identifier: str) -> None:
        """See QueueObserver."""
        for observer in self._observers:
            observer.lost(identifier)

    def loaded(self, identifier: str, batches: int, seconds: float) -> None:
        """See QueueObserver."""
        for observer in self._observers:
            observer.loaded(identifier, batches, seconds)

    def consumed(self, identifier: str) -> None:
        """See QueueObserver."""
        for observer in self._observers:
            observer.consumed(identifier)
