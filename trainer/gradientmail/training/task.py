"""A task: what to train. Built by a callable that the manifest names as `module:callable`.

The callable takes a Setting, then the manifest's arguments as keyword arguments, and returns a
Task. Annotations of its parameters are checked against the manifest's values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from gradientmail.exits import UserError
from gradientmail.mailbox import S3Options
from gradientmail.patterns.retrying import Patience
from gradientmail.training.data.corpus import Corpus, open_corpus
from gradientmail.training.data.shards import Format


class TaskError(UserError):
    """A task that cannot be imported, called with the manifest's arguments, or trained."""


class Sequences(Protocol):
    """A dataset reader: called on the queue's background thread, may block on disk or network."""

    def __call__(self, start: int, count: int, /) -> Tensor:
        """Return sequences [start, start + count) of the dataset, one in each row."""
        ...


@dataclass(frozen=True)
class Setting:
    """What a task is told of the run and of the node that it is built on."""

    device: torch.device
    seed: int = 0
    """The global random state has been seeded with it, so that every node builds the same parameters."""
    steps: int = 1
    """Dataset steps of the whole run."""
    batch: int = 1
    """Sequences in one dataset step, over all lanes."""
    micro_batch: int = 1
    """Sequences in one forward and backward pass."""
    autocast: torch.dtype | None = None
    """Data type of the forward pass's autocast; None for none."""
    s3: S3Options = field(default_factory=S3Options)
    """The manifest's endpoint and region, for data on the same store."""
    patience: Patience | None = None
    """How long to wait for data that cannot be read for a passing reason; None for 15 minutes."""

    def corpus(self, where: str, *, vocabulary: int, form: Format = "auto") -> Corpus:
        """Open token files, local or `s3://`. Raises CorpusError or MailboxUnavailable."""
        return open_corpus(where, vocabulary=vocabulary, form=form, s3=self.s3, patience=self.patience)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to train, on one device. `model(x, y)` returns the mean loss over the tokens of y."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float]
    """Learning rate by dataset step."""
    sequences: Sequences
    """Reads the dataset; each row has one token more than the context, as x is row[:-1] and y is row[1:]."""
    context: int
    """Tokens of one sequence that are trained on: the samples of a sequence."""
    available: int | None = None
    """Sequences in the dataset; None if it has no end."""
    evaluate: Callable[[nn.Module], float] | None = None
    """Loss on held-out data, in nats per token. Called on the training thread; None if there are none."""

    def __post_init__(self) -> None:
        for name, kind, expected in (
            ("model", nn.Module, "a torch.nn.Module"),
            ("optimizer", torch.optim.Optimizer, "a torch.optim.Optimizer"),
            ("context", int, "an int"),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TaskError(f"the task's {name} is {_shown(value)}, but {expected} is expected")
        for name in ("schedule", "sequences", "evaluate"):
            value = getattr(self, name)
            if not callable(value) and not (name == "evaluate" and value is None):
                raise TaskError(f"the task's {name} is {_shown(value)}, but a callable is expected")
        if self.context < 1:
            raise TaskError(f"the task's context is {self.context}: a sequence has at least 1 token")


def check_available(task: Task, *, steps: int, batch: int) -> None:
    """Raise TaskError, with the number of steps it serves, if the task's dataset is too short for the run."""
    if task.available is not None and task.available < steps * batch:
        served = task.available // batch
        raise TaskError(
            f"the task's dataset has {task.available:,} sequences of {task.context:,} tokens, enough for {served:,} "
            f"steps of {batch:,} sequences, but the run needs {steps:,} steps: set spec.data.steps to {served} "
            "or less, or give more data"
        )


def _shown(value: object) -> str:
    return f"{str(value)[:60]!r} ({type(value).__name__})"
