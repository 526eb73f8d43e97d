"""Simulated slowness, on clocks of the test's own."""

from __future__ import annotations

import pytest
import torch

from gradientmail.training.pace import Pace, pace_for
from gradientmail.training.slowness import Slowness


class Machine:
    """Clocks that move when told to."""

    def __init__(self) -> None:
        self.compute = self.wall = 0.0
        self.sleeps: list[float] = []

    def work(self, compute: float, contention: float = 0.0) -> None:
        self.compute += compute
        self.wall += compute + contention

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.wall += seconds

    def pace(self, factor: float, headroom: float = 1.0) -> Pace:
        return Pace(
            Slowness(factor, headroom),
            sleep=self.sleep,
            compute_clock=lambda: self.compute,
            wall_clock=lambda: self.wall,
        )


def run(machine: Machine, pace: Pace, contention: list[float]) -> float:
    for lost in contention:
        pace.begin()
        machine.work(1.0, lost)
        pace.end()
    return machine.wall


def test_a_batch_takes_factor_times_its_compute_time() -> None:
    machine = Machine()
    assert run(machine, machine.pace(4.0), [0.0, 0.0]) == 8.0
    assert machine.sleeps == [3.0, 3.0]


def test_contention_within_the_headroom_changes_nothing() -> None:
    fast, slow = Machine(), Machine()
    assert run(fast, fast.pace(1.5, headroom=1.5), [0.0, 0.5, 0.25]) == 4.5
    assert run(slow, slow.pace(6.0, headroom=1.5), [0.0, 0.5, 0.25]) == 18.0


def test_contention_beyond_the_headroom_stretches_all_alike() -> None:
    fast, slow = Machine(), Machine()
    assert run(fast, fast.pace(1.5, headroom=1.5), [2.0, 2.0]) == 6.0
    assert run(slow, slow.pace(6.0, headroom=1.5), [2.0, 2.0]) == 24.0


def test_without_headroom_the_ratio_is_kept_as_well() -> None:
    machine = Machine()
    assert run(machine, machine.pace(4.0), [1.0]) == 8.0


def test_oversleeping_is_made_up_by_the_next_batches_up_to_one() -> None:
    machine = Machine()
    over = [0.5, 100.0, 0.0, 0.0]

    def sleep(seconds: float) -> None:
        machine.sleep(seconds + over.pop(0))

    pace = Pace(Slowness(2.0), sleep=sleep, compute_clock=lambda: machine.compute, wall_clock=lambda: machine.wall)
    run(machine, pace, [0.0] * 6)
    assert machine.sleeps == [1.5, 100.5, 1.0]


def test_waiting_for_data_is_not_made_up() -> None:
    machine = Machine()
    pace = machine.pace(3.0)
    for _ in range(2):
        machine.wall += 10.0
        pace.begin()
        machine.work(1.0)
        pace.end()
    assert machine.sleeps == [2.0, 2.0]


@pytest.mark.parametrize(("factor", "slowed"), [(1.0, False), (0.5, False), (1.5, True)])
def test_only_slower_nodes_are_slowed(factor: float, slowed: bool) -> None:
    assert (pace_for(Slowness(factor), torch.device("cpu"), lambda _: None) is not None) is slowed
