"""A task that learns, and takes `PACE` seconds over each batch until the file `RELEASED` is there."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from gradientmail.training.task import Setting, Task
from tests.integration import noisy_task


def task(setting: Setting) -> Task:
    pace, released = float(os.environ["PACE"]), Path(os.environ["RELEASED"])
    made = noisy_task.task(setting)

    def schedule(step: int) -> float:
        if not released.exists():
            time.sleep(pace)
        return made.schedule(step)

    return replace(made, schedule=schedule)
