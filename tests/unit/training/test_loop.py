"""The training loop, in exact numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gradientmail.exchange import Solo
from gradientmail.training.loop import Rule, Trained, autocast_type, train, train_batch, unit_loader
from gradientmail.training.task import Task
from gradientmail.units import Unit

CPU = torch.device("cpu")


class Slope(nn.Module):
    """loss = mean over the batch of weight * x * y: its gradient is mean(x * y)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.calls: list[int] = []

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls.append(len(x))
        return (self.weight * x * y).mean()


def task_of(model: nn.Module, schedule: Callable[[int], float] = lambda _: 1.0) -> Task:
    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        schedule=schedule,
        sequences=lambda start, count: torch.arange(start, start + count).unsqueeze(1),
        context=1,
    )


# Four sequences of one x and one y: x * y is 2, 6, 12, 20, its mean 10.
BATCH = torch.tensor([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [4.0, 5.0]])


@pytest.mark.parametrize(("micro_batch", "calls"), [(4, [4]), (2, [2, 2]), (1, [1, 1, 1, 1]), (3, [3, 1])])
def test_accumulated_micro_batches_equal_the_full_batch(micro_batch: int, calls: list[int]) -> None:
    model = Slope()
    loss = train_batch(BATCH, task_of(model), Rule(CPU, micro_batch, clip_norm=None), learning_rate=0.1)
    assert model.calls == calls
    assert float(loss) == pytest.approx(20.0)
    assert model.weight.item() == pytest.approx(2.0 - 0.1 * 10.0)
    assert model.weight.grad is None


def test_gradients_are_clipped_to_the_norm() -> None:
    model = Slope()
    train_batch(BATCH, task_of(model), Rule(CPU, 4, clip_norm=1.0), learning_rate=0.1)
    assert model.weight.item() == pytest.approx(1.9, abs=1e-6)


def test_each_batch_has_the_learning_rate_of_its_step_and_is_reported() -> None:
    model = Slope()
    seen: list[Trained] = []
    session = Solo()
    train(
        [(7, BATCH), (3, BATCH)],
        task_of(model, schedule=lambda step: step / 100),
        session,
        Rule(CPU, 2, clip_norm=None),
        done=seen.append,
    )
    assert model.weight.item() == pytest.approx(2.0 - 0.07 * 10 - 0.03 * 10)
    assert [(each.step, each.learning_rate, each.samples) for each in seen] == [(7, 0.07, 4), (3, 0.03, 4)]
    assert [float(each.loss) for each in seen] == pytest.approx([20.0, 13.0])
    assert (session.steps, session.samples) == (2, 8)


def test_model_is_trained_in_training_mode() -> None:
    model = Slope()
    model.eval()
    train([(0, BATCH)], task_of(model), Solo(), Rule(CPU, 4), done=lambda _: None)
    assert model.training


@pytest.mark.parametrize(
    ("precision", "device", "dtype"),
    [
        ("Auto", "cpu", None),
        ("Auto", "cuda", torch.bfloat16),
        ("BFloat16", "cpu", torch.bfloat16),
        ("Float32", "cuda", None),
    ],
)
def test_precision(precision: str, device: str, dtype: torch.dtype | None) -> None:
    assert autocast_type(precision, torch.device(device)) is dtype  # type: ignore[arg-type]


def test_bfloat16_reaches_the_forward_pass_only() -> None:
    seen: list[torch.dtype] = []

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            out = self.layer(x)
            seen.append(out.dtype)
            loss: Tensor = out.float().mean()
            return loss

    model = Layer()
    train_batch(BATCH, task_of(model), Rule(CPU, 4, autocast=torch.bfloat16), learning_rate=0.1)
    assert seen == [torch.bfloat16]
    assert model.layer.weight.dtype is torch.float32


def test_loader_gives_a_units_lane_of_each_step() -> None:
    load_unit = unit_loader(lambda start, count: torch.tensor([start, count]), batch=1024)
    pairs = [(step, tensor.tolist()) for step, tensor in load_unit(Unit(first=20, count=3, lane=2, lanes=4))]
    assert pairs == [
        (20, [20 * 1024 + 512, 256]),
        (21, [21 * 1024 + 512, 256]),
        (22, [22 * 1024 + 512, 256]),
    ]


def test_loader_reads_nothing_ahead() -> None:
    reads: list[int] = []

    def sequences(start: int, count: int) -> Tensor:
        reads.append(start)
        return torch.zeros(count)

    batches = unit_loader(sequences, batch=4)(Unit(0, 10, 0, 1))
    next(batches)
    assert reads == [0]


def test_solo_refuses_a_step_without_samples() -> None:
    with pytest.raises(ValueError, match="samples is 0"), Solo() as session:
        session.step(samples=0)
