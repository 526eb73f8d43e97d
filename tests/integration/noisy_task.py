"""A task for tests that learns as a model of text does, in a second: a bigram model on sentences of a Markov chain.

Its gradients are noisy and its learning rate falls to zero, so that it shows whether nodes learn from each other.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gradientmail.training.task import Setting, Task

VOCABULARY, CONTEXT, HELD_OUT = 16, 8, 2000


def hook(step: int) -> None:
    """Called before each step; tests put theirs in its place."""


class Bigram(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.embed(x)).flatten(0, 1), y.flatten())


def sentences(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    chances = torch.softmax(2.0 * torch.randn(VOCABULARY, VOCABULARY, generator=generator), 1)
    rows = [torch.randint(VOCABULARY, (count,), generator=generator)]
    for _ in range(CONTEXT):
        rows.append(torch.multinomial(chances[rows[-1]], 1, generator=generator)[:, 0])
    return torch.stack(rows, 1)


def task(
    setting: Setting, *, width: int = 16, learning_rate: float = 0.003, diverges_at: int = -1, gate: str = ""
) -> Task:
    """Return the task; with a gate, nothing of the second half is loaded before that file exists."""
    model = Bigram(width).to(setting.device)
    data = sentences(setting.steps * setting.batch + HELD_OUT)
    held_out = data[-HELD_OUT:]

    def schedule(step: int) -> float:
        hook(step)
        return float("nan") if step == diverges_at else learning_rate * (1 - step / setting.steps)

    def sequences(start: int, count: int) -> Tensor:
        while gate and start >= setting.steps * setting.batch // 2 and not Path(gate).exists():
            time.sleep(0.01)
        return data[start : start + count]

    def evaluate(model: nn.Module) -> float:
        with torch.no_grad():
            return float(model(held_out[:, :-1], held_out[:, 1:]))

    return Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=learning_rate),
        schedule=schedule,
        sequences=sequences,
        context=CONTEXT,
        evaluate=evaluate,
    )
