"""The arithmetic against fixtures worked out apart from it, in float64 or by hand."""

from __future__ import annotations

import pytest
import torch

from gradientmail.exchange.merging import correction, delta, mean, outer_step, warmed_up

# Two learners with 3 and 1 samples, two rounds, lr 0.7 and momentum 0.9, from decimal arithmetic:
#   g1 = (3 * (0.4, -0.2) + (0.8, 0.6)) / 4 = (0.5, 0.0);  m1 = g1
#   theta1 = theta0 - 0.7 (g1 + 0.9 m1) = theta0 - 1.33 g1
#   g2 = (3 * (0.1, 0.1) + (-0.3, 0.5)) / 4 = (0.0, 0.2);  m2 = 0.9 m1 + g2 = (0.45, 0.2)
#   theta2 = theta1 - 0.7 (g2 + 0.9 m2) = theta1 - 0.7 (0.405, 0.38)
START = (1.0, -2.0)
Deltas = list[tuple[tuple[float, float], int]]
ROUNDS: list[tuple[Deltas, tuple[float, float], tuple[float, float]]] = [
    ([((0.4, -0.2), 3), ((0.8, 0.6), 1)], (0.5, 0.0), (0.335, -2.0)),
    ([((0.1, 0.1), 3), ((-0.3, 0.5), 1)], (0.45, 0.2), (0.0515, -2.266)),
]
"""Deltas and samples; the momentum and the parameters after the round."""


def test_merge_and_nesterov_step_match_the_golden_fixture() -> None:
    theta, momentum = torch.tensor(START), torch.zeros(2)
    for deltas, expected_momentum, expected in ROUNDS:
        gradient = mean([(torch.tensor(value), samples) for value, samples in deltas], theta)
        assert gradient is not None
        theta, momentum, _ = outer_step(theta, momentum, gradient, lr=0.7, mu=0.9, transfer=torch.float32)
        torch.testing.assert_close(momentum, torch.tensor(expected_momentum), rtol=0, atol=1e-6)
        torch.testing.assert_close(theta, torch.tensor(expected), rtol=0, atol=1e-6)


def test_the_outer_step_is_torch_sgd_with_nesterov_momentum_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    theta, momentum = torch.randn(50, generator=generator), torch.zeros(50)
    reference = theta.double().clone().requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=0.8, momentum=0.6, nesterov=True)
    for _ in range(20):
        gradient = torch.randn(50, generator=generator)
        theta, momentum, _ = outer_step(theta, momentum, gradient.clone(), lr=0.8, mu=0.6, transfer=torch.float32)
        reference.grad = gradient.double()
        optimizer.step()
        torch.testing.assert_close(theta.double(), reference.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lr", "mu"), [(1.0, 0.5), (0.7, 0.9), (1.0, 0.0)])
def test_a_chain_of_one_node_equals_the_closed_form(lr: float, mu: float) -> None:
    """With the same delta d every round: m_n = d (1 - mu^n) / (1 - mu), and theta_n is their sum."""
    d, rounds = 0.25, 12
    theta, momentum = torch.tensor([3.0]), torch.zeros(1)
    for _ in range(rounds):
        theta, momentum, _ = outer_step(theta, momentum, torch.tensor([d]), lr=lr, mu=mu, transfer=torch.float32)
    momenta = [d * (1 - mu**n) / (1 - mu) for n in range(1, rounds + 1)]
    assert momentum.item() == pytest.approx(momenta[-1], rel=1e-5)
    assert theta.item() == pytest.approx(3.0 - lr * (rounds * d + mu * sum(momenta)), rel=1e-5)


@pytest.mark.parametrize(
    ("mu", "rounds", "sync_every", "samples", "expected"),
    [
        (0.8, 0, 50, [7, 7, 7], 0.0),
        (0.8, 1, 50, [7, 7, 7], 0.1),
        (0.8, 8, 50, [7, 7, 7], 0.8),
        (0.8, 500, 50, [7, 7, 7], 0.8),
        (0.8, 19, 20, [7], 0.76),
        (0.8, 1, 401, [7], 0.8),
        (0.8, 0, 50, [4, 2, 2, 1], 11 / 36),  # the mean moves by 25/36 of the first
        (0.8, 2, 50, [400, 200, 200, 100], 11 / 36),
        (0.8, 4, 50, [4, 2, 2, 1], 0.4),
        (0.2, 0, 50, [4, 2, 2, 1], 0.2),
        (0.0, 0, 50, [4, 2, 2, 1], 0.0),
    ],
)
def test_momentum_grows_over_the_first_400_steps_from_what_unequal_shares_need(
    mu: float, rounds: int, sync_every: int, samples: list[int], expected: float
) -> None:
    assert warmed_up(mu, rounds, sync_every, samples) == pytest.approx(expected)


def test_no_delta_is_no_mean() -> None:
    assert mean([], torch.zeros(3)) is None


def test_with_momentum_zero_and_rate_one_a_lone_node_is_left_where_it_is() -> None:
    anchor, theta = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.25])
    offered = delta(anchor, theta.clone(), torch.float32)
    version = outer_step(anchor, torch.zeros(2), offered.clone(), lr=1.0, mu=0.0, transfer=torch.float32)
    assert correction(version.parameters, anchor, offered).tolist() == [0.0, 0.0]


def test_adopting_keeps_what_was_learned_since_and_counts_nothing_twice() -> None:
    anchor, offered, version = torch.tensor([1.0]), torch.tensor([0.25]), torch.tensor([0.5])
    theta = 0.75 - 0.125  # 1.0 - 0.25 when it was offered, and 0.125 further by now
    assert theta + correction(version, anchor, offered).item() == 0.5 - 0.125
    assert theta + correction(version, anchor, None).item() == theta - 0.5


def test_bfloat16_deltas_round_within_their_type_and_the_rest_stays_with_the_learner() -> None:
    generator = torch.Generator().manual_seed(1)
    anchor = torch.randn(1000, generator=generator)
    theta = anchor + 0.01 * torch.randn(1000, generator=generator)
    offered = delta(anchor, theta.clone(), torch.bfloat16)
    exact = anchor.double() - theta.double()
    assert ((offered.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-7).all()
    # Merged alone at rate 1, the version is the anchor less the rounded delta: the learner keeps exactly the rest.
    version = outer_step(anchor, torch.zeros(1000), offered.float(), lr=1.0, mu=0.0, transfer=torch.bfloat16)
    after = theta + correction(version.parameters, anchor, offered)
    torch.testing.assert_close(after, theta, rtol=0, atol=1e-6)


def test_a_version_is_exactly_the_one_before_and_its_rounded_step() -> None:
    generator = torch.Generator().manual_seed(2)
    theta, gradient = torch.randn(1000, generator=generator), torch.randn(1000, generator=generator)
    outer = outer_step(theta, torch.zeros(1000), gradient.clone(), lr=0.9, mu=0.5, transfer=torch.bfloat16)
    assert outer.step.dtype == torch.bfloat16
    assert torch.equal(outer.parameters, theta + outer.step.float())
    exact = theta.double() - 0.9 * 1.5 * gradient.double()
    assert ((outer.parameters.double() - exact).abs() <= (exact - theta).abs() * 2**-8 + 1e-6).all()
