"""Local runs as a user starts them: the command in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import waiting

LIMIT_SECONDS = 240.0

TASK = """
import time
from pathlib import Path

import torch
from torch import nn

from gradientmail.training.task import Setting, Task


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x, y):
        return ((x.float() @ self.weight[: x.shape[1], None]) - y.float()).square().mean()


def task(setting: Setting, *, gate: str = "", fails_at: int = -1) -> Task:
    model = Model()

    def sequences(start, count):
        if fails_at >= 0 and start >= fails_at:
            raise RuntimeError("the disk of the corpus is gone")
        while gate and start >= 4 * setting.batch and not Path(gate).exists():
            time.sleep(0.01)
        return torch.ones((count, 5), dtype=torch.long)

    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        schedule=lambda step: 0.01,
        sequences=sequences,
        context=4,
        evaluate=lambda model: 1.0,
    )
"""
"""A task that takes no time, or from dataset step 4 on waits until the file `gate` exists."""
FIRST_AT_THE_GATE = "000004"
"""As identifiers of units begin."""

MANIFEST: dict[str, Any] = {
    "apiVersion": "gradientmail.io/v1alpha1",
    "kind": "GradientRun",
    "metadata": {"name": "tiny"},
    "spec": {
        "data": {"steps": 12, "batch": 4, "lanes": 2, "unitSteps": 1},
        "trainer": {"task": "tiny:task", "microBatch": 2, "logEvery": 1, "prefetch": 1},
        "nodes": [{"name": "a"}, {"name": "b"}],
    },
}
"""24 units of one batch each."""


STARTED: list[subprocess.Popen[str]] = []
"""Commands of the test that runs; tests/integration/conftest.py ends those that are left."""


class Folder:
    """A user's folder, with a task and a manifest in it."""

    def __init__(self, path: Path, **arguments: object) -> None:
        self.path = path
        self.out = path / "out"
        (path / "tiny.py").write_text(TASK)
        manifest = json.loads(json.dumps(MANIFEST))
        manifest["spec"]["trainer"]["args"] = arguments
        self.write(manifest)

    def write(self, manifest: dict[str, Any]) -> None:
        """Write the manifest; JSON is YAML."""
        (self.path / "run.yaml").write_text(json.dumps(manifest))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command line here."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gradientmail", *arguments],
            cwd=self.path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        STARTED.append(process)
        return process

    def local(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the run into `out`."""
        return self.start("local", "run.yaml", "--out", "out", "--no-picture", *arguments)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command line here."""
        return ended(self.start(*arguments))

    def consumed(self) -> int:
        """Receipts in the mailbox."""
        return len(list((self.out / "mailbox" / "consumed").glob("*.json")))

    def held_by(self, node: str) -> int:
        """Claims of a node's learner that wait at the gate."""
        return sum(path.name >= FIRST_AT_THE_GATE for path in self._claims(node))

    def both_hold(self) -> bool:
        """Whether each node has a unit that waits at the gate, and so takes part."""
        return self.held_by("a-0") > 0 and self.held_by("b-0") > 0

    def claimed_by(self, node: str) -> int:
        """Claims of a node's learner in the mailbox."""
        return len(self._claims(node))

    def _claims(self, node: str) -> list[Path]:
        units = (self.out / "mailbox" / "units").glob("*.json")
        return [path for path in units if path.read_text().startswith(f"{node}-")]


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Return the process once it has ended, or kill it."""
    try:
        out, error = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def end_what_was_started() -> None:
    """Kill the commands of this test that still run, and the nodes of those, which may be stopped."""
    while STARTED:
        with STARTED.pop() as process:
            if process.poll() is None:
                for node in children_of(process.pid).values():
                    with suppress(ProcessLookupError):
                        os.kill(node, signal.SIGKILL)
                process.kill()


def until(
    condition: Callable[[], object],
    process: subprocess.Popen[str] | None = None,
    *,
    not_yet: tuple[type[Exception], ...] = (),
) -> None:
    """Wait for the condition, for as long as the process runs; errors of the kinds `not_yet` do not fulfil it."""

    def runs_on() -> None:
        assert process is None or process.poll() is None, ended(process)

    waiting.until(condition, seconds=LIMIT_SECONDS, meanwhile=runs_on, every_seconds=0.02, not_yet=not_yet)


def children_of(pid: int) -> dict[str, int]:
    """Return the process of each node that a local run has started."""
    found = {}
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--node" in words:
                found[words[words.index("--node") + 1]] = child
    return found


def runs(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
