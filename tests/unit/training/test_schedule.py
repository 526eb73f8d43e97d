"""Learning rates."""

import pytest

from gradientmail.training.schedule import WarmupCosine


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.25), (1, 0.5), (3, 1.0), (4, 1.0), (5, 0.868198), (6, 0.55), (7, 0.231802), (8, 0.1), (9, 0.1)],
)
def test_warm_up_then_half_a_cosine(step: int, rate: float) -> None:
    assert WarmupCosine(peak=1.0, final=0.1, warmup=4, steps=8)(step) == pytest.approx(rate, abs=1e-6)


def test_without_warm_up_the_first_step_has_the_peak() -> None:
    assert WarmupCosine(peak=3e-4, final=0.0, warmup=0, steps=100)(0) == 3e-4


def test_run_of_one_step() -> None:
    assert WarmupCosine(peak=1.0, final=0.1, warmup=0, steps=1)(0) == 1.0
