"""A task that takes its time over each batch, and holds dataset steps back until a file lets them go.

`PACE` is the seconds a batch takes. Steps below the number in the file `LIMIT_FILE` are loaded; until it exists,
`LIMIT` counts. So a run can be brought to a stand in which no count changes.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from gradientmail.training.task import Setting, Task
from tests.integration import tiny_task


def limit() -> int:
    file = Path(os.environ["LIMIT_FILE"])
    return int(file.read_text() if file.exists() else os.environ.get("LIMIT", "0"))


def task(setting: Setting) -> Task:
    tiny_task.hook = lambda step: time.sleep(float(os.environ["PACE"]))
    made = tiny_task.task(setting)

    def sequences(start: int, count: int) -> Tensor:
        while start // setting.batch >= limit():
            time.sleep(0.02)
        return made.sequences(start, count)

    return replace(made, sequences=sequences)
