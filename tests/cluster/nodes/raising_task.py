"""A task that fails once it trains."""

from __future__ import annotations

from dataclasses import replace

from gradientmail.training.task import Setting, Task
from tests.integration.tiny_task import task as tiny_task


def task(setting: Setting) -> Task:
    def broken(step: int) -> float:
        raise RuntimeError("the learning rate is upside down")

    return replace(tiny_task(setting), schedule=broken)
