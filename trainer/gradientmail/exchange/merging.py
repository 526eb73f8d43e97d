"""The arithmetic of the exchange, in float32 on flat CPU tensors. Pure.

Source: DiLoCo (arXiv 2311.08105): the outer gradient is how far the learners have come from the
anchor, and the outer optimizer is SGD with Nesterov momentum. Deltas count by samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

WARM_UP_STEPS = 400
"""Steps of the fastest learner over which the outer momentum grows to what the options say."""


class Outer(NamedTuple):
    """The next version of a fragment."""

    parameters: Tensor
    momentum: Tensor
    step: Tensor
    """Difference to the version before, in the transfer type: adding it to that version gives exactly `parameters`."""


def delta(anchor: Tensor, parameters: Tensor, transfer: torch.dtype) -> Tensor:
    """Return anchor - parameters in the transfer type. Overwrites `parameters`.

    What is rounded off stays with the learner; see `correction`.
    """
    return torch.sub(anchor, parameters, out=parameters).to(transfer)


def mean(deltas: Iterable[tuple[Tensor, int]], like: Tensor) -> Tensor | None:
    """Return the mean of deltas weighted by samples, None if there are none. Holds one delta at a time."""
    total, result = 0, torch.zeros_like(like)
    for value, samples in deltas:
        result.add_(value, alpha=samples)
        total += samples
    return result.div_(total) if total else None


def outer_step(
    parameters: Tensor, momentum: Tensor, gradient: Tensor, *, lr: float, mu: float, transfer: torch.dtype
) -> Outer:
    """Return the version after `parameters`: m' = mu m + g; theta' = theta - lr (g + mu m'). Overwrites `gradient`."""
    next_momentum, step = momentum_and_step(momentum, gradient, lr=lr, mu=mu, transfer=transfer)
    return Outer(parameters + step, next_momentum, step)


def momentum_and_step(
    momentum: Tensor, gradient: Tensor, *, lr: float, mu: float, transfer: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the next momentum, and the step from a version to the next in the transfer type. Overwrites `gradient`."""
    next_momentum = momentum.mul(mu).add_(gradient)
    return next_momentum, gradient.add_(next_momentum, alpha=mu).mul_(-lr).to(transfer)


def warmed_up(mu: float, rounds: int, sync_every: int, samples: Sequence[int]) -> float:
    """Return the outer momentum of a round after so many of its fragment, which merges deltas over these samples.

    In the first rounds all learners move far and the same way, each as far as it has trained. Their mean
    falls short of the furthest by the share Σ n² / (n_max Σ n), and so much momentum as makes up for
    that is enough: 0 among equal learners. More carries the parameters past where all were going. Later
    deltas differ by noise, which shortens their mean further: over WARM_UP_STEPS momentum grows to `mu`.
    """
    share = sum(count * count for count in samples) / (max(samples) * sum(samples))
    return min(mu, max(1 - share, mu * min(1.0, rounds * sync_every / WARM_UP_STEPS)))


def step_without_momentum(gradient: Tensor, *, lr: float, transfer: torch.dtype) -> Tensor:
    """Return the step of a round that covers what is left over by learners that leave. Overwrites `gradient`.

    Momentum looks ahead by as much as a whole round moves; after the last work there is nothing for it to meet.
    """
    return gradient.mul_(-lr).to(transfer)


def correction(parameters: Tensor, anchor: Tensor, merged: Tensor | None) -> Tensor:
    """Return what a learner adds to its own parameters when it adopts a version.

    merged: the learner's delta that the version holds, if it holds one. Its parameters then were
    `anchor - merged` up to rounding, and only what it has learned since is added to the version:
    theta + (parameters - (anchor - merged)). Otherwise all since the anchor is: theta + (parameters - anchor).
    Where the version is the one after the anchor, parameters - anchor is its step.
    """
    difference = parameters - anchor
    return difference if merged is None else difference.add_(merged.to(difference.dtype))
