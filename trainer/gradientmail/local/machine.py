"""What this machine has: cores and GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

GPUS = "CUDA_VISIBLE_DEVICES"


def usable_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Return the GPUs to spread nodes over, as CUDA_VISIBLE_DEVICES names them. Does not import torch.

    If the user has chosen some, those; else what nvidia-smi lists, else what /dev holds.
    """
    if GPUS in environment:
        return [name for name in environment[GPUS].split(",") if name]
    return _listed_gpus() or sorted(
        (path.name.removeprefix("nvidia") for path in devices.glob("nvidia[0-9]*")), key=lambda name: (len(name), name)
    )


def _listed_gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 - no shell
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip().isdecimal()]
