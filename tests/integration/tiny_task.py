"""A task for tests: a bigram model on an endless made-up dataset, and a hook that is told of each step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gradientmail.training.task import Setting, Task

VOCABULARY = 16
CONTEXT = 4

hook: Callable[[int], object] = lambda step: None  # noqa: E731 - tests put theirs in its place


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.table(x).flatten(0, 1), y.flatten())


def sequences(start: int, count: int) -> Tensor:
    first = torch.arange(start, start + count).unsqueeze(1)
    return (first + 3 * torch.arange(CONTEXT + 1)) % VOCABULARY


def task(setting: Setting, *, available: int | None = None, evaluated: bool = True) -> Task:
    model = Bigram().to(setting.device)

    def schedule(step: int) -> float:
        hook(step)
        return 1.0

    def evaluate(model: nn.Module) -> float:
        batch = sequences(0, 16)
        with torch.no_grad():
            return float(model(batch[:, :-1], batch[:, 1:]))

    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        schedule=schedule,
        sequences=sequences,
        context=CONTEXT,
        available=available,
        evaluate=evaluate if evaluated else None,
    )
