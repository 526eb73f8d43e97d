"""The training loop: one optimizer step for each batch of the shared queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradientmail.exchange import TrainingSession
from gradientmail.training.pace import Pace
from gradientmail.training.task import Sequences, Task
from gradientmail.units import Unit


@dataclass(frozen=True)
class Rule:
    """How a batch becomes an optimizer step."""

    device: torch.device
    micro_batch: int
    """Sequences in one forward and backward pass; the gradients of a batch's micro-batches are accumulated."""
    clip_norm: float | None = 1.0
    """Largest norm of the gradients; None for no clipping."""
    autocast: torch.dtype | None = None
    """Data type of the forward pass; None for that of the parameters."""


@dataclass(frozen=True)
class Trained:
    """One batch that has been trained."""

    step: int
    """Its dataset step."""
    loss: Tensor
    """Mean loss, a scalar on the device: reading it waits for the device."""
    learning_rate: float
    samples: int
    """Tokens trained on."""


def train(
    batches: Iterable[tuple[int, Tensor]],
    task: Task,
    session: TrainingSession,
    rule: Rule,
    *,
    done: Callable[[Trained], None],
    pace: Pace | None = None,
) -> None:
    """Train on each batch in turn. Raises what the task, the session, the queue or `done` raise.

    `done` is told of each batch on this thread, after `session.step`.
    """
    task.model.train()
    for step, batch in batches:
        if pace is not None:
            pace.begin()
        learning_rate = task.schedule(step)
        loss = train_batch(batch, task, rule, learning_rate)
        samples = len(batch) * task.context
        session.step(samples=samples)
        if pace is not None:
            pace.end()
        done(Trained(step, loss, learning_rate, samples))


def train_batch(batch: Tensor, task: Task, rule: Rule, learning_rate: float) -> Tensor:
    """Make one optimizer step; return the batch's mean loss, on the device, without waiting for it."""
    batch = batch.to(rule.device, non_blocking=True)
    for group in task.optimizer.param_groups:
        group["lr"] = learning_rate
    total = torch.zeros((), device=rule.device)
    for chunk in torch.split(batch, rule.micro_batch):
        with autocast(rule.device, rule.autocast):
            # The weight is 1 / accumulation, also where the last chunk is smaller than the others.
            loss = task.model(chunk[:, :-1], chunk[:, 1:]) * (len(chunk) / len(batch))
        loss.backward()
        total += loss.detach()
    if rule.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), rule.clip_norm)
    task.optimizer.step()
    task.optimizer.zero_grad(set_to_none=True)
    return total


def autocast(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Return the context of a forward pass in `dtype`; None leaves everything in the parameters' own."""
    return torch.autocast(device_type=device.type, dtype=dtype, enabled=dtype is not None)


def autocast_type(precision: Literal["Auto", "BFloat16", "Float32"], device: torch.device) -> torch.dtype | None:
    """Return the autocast data type of the manifest's precision. Auto: bfloat16 on CUDA, none elsewhere."""
    if precision == "BFloat16" or (precision == "Auto" and device.type == "cuda"):
        return torch.bfloat16
    return None


def unit_loader(
    sequences: Sequences, batch: int, *, pin: bool = False
) -> Callable[[Unit], Iterator[tuple[int, Tensor]]]:
    """Return the loader that turns a unit into (step, tensor) pairs for a dataset step of `batch` sequences.

    With `pin`, tensors lie in page-locked memory, which lets the copy to the GPU overlap with its work.
    """

    def load_unit(unit: Unit) -> Iterator[tuple[int, Tensor]]:
        share = batch // unit.lanes
        for step in range(unit.first, unit.first + unit.count):
            start = step * batch + unit.lane * share
            tensor = sequences(start, share)
            yield step, tensor.pin_memory() if pin else tensor

    return load_unit
