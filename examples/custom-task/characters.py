"""A task of one's own: a recurrent network that learns the bytes of one file."""

from pathlib import Path

import torch
from torch import Tensor, nn

from gradientmail.training.task import Setting, Task


class Recurrent(nn.Module):
    """`model(x, y)` returns the loss; that is all the training loop asks of a model."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.layer = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, 256)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of predicting y from x."""
        states, _ = self.layer(self.embedding(x))
        return nn.functional.cross_entropy(self.output(states).flatten(0, 1), y.flatten())


def task(setting: Setting, *, file: str, context: int = 32, width: int = 64, learning_rate: float = 3e-3) -> Task:
    """Take the manifest's `args` as keyword arguments, after what is known of the run and the node."""
    data = torch.frombuffer(bytearray(Path(file).read_bytes()), dtype=torch.uint8)
    model = Recurrent(width).to(setting.device)

    def sequences(start: int, count: int) -> Tensor:
        return data[start * context : (start + count) * context + 1].unfold(0, context + 1, context).long()

    return Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters()),
        schedule=lambda step: learning_rate * (1 - step / setting.steps),
        sequences=sequences,
        context=context,
        available=(len(data) - 1) // context,
    )
