"""Simulated slowness, on clocks of the test's own."""

from __future__ import annotations

import pytest
import torch

from gradientmail.training.pace import Pace, pace_for


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

    def pace(self, factor: float) -> Pace:
        return Pace(factor, sleep=self.sleep, compute_clock=lambda: self.compute, wall_clock=lambda: self.wall)


def run(machine: Machine, factor: float, contention: list[float]) -> float:
    pace = machine.pace(factor)
    for lost in contention:
        pace.begin()
        machine.work(1.0, lost)
        pace.end()
    return machine.wall


def test_a_batch_takes_factor_times_its_compute_time() -> None:
    machine = Machine()
    assert run(machine, 4.0, [0.0, 0.0]) == 8.0
    assert machine.sleeps == [3.0, 3.0]


def test_contention_is_taken_off_the_sleep() -> None:
    machine = Machine()
    assert run(machine, 4.0, [1.0, 2.0]) == 8.0
    assert machine.sleeps == [2.0, 1.0]


def test_a_late_batch_is_made_up_by_the_next() -> None:
    machine = Machine()
    assert run(machine, 4.0, [4.0, 0.0]) == 8.0
    assert machine.sleeps == [2.0]


def test_no_more_than_one_batch_is_made_up() -> None:
    machine = Machine()
    run(machine, 2.0, [100.0, 0.0, 0.0, 0.0])
    assert machine.wall == 101.0 + 1.0 + 1.0 + 2.0


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
    assert (pace_for(factor, torch.device("cpu"), lambda _: None) is not None) is slowed
