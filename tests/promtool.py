"""promtool, as the tests call it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PROMTOOL_SECONDS = 60.0


@dataclass(frozen=True)
class Promtool:
    """The program; every call ends within 60 s."""

    program: Path

    def complaints(self, *arguments: str | Path, text: str | None = None) -> str:
        """What it has to say against its input; nothing when all is well."""
        done = subprocess.run(
            [self.program, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=PROMTOOL_SECONDS,
            check=False,
        )
        if done.returncode == 0 and not done.stderr:
            return ""
        return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"

    def check_metrics(self, page: str) -> str:
        """What is wrong with a page of metrics."""
        return self.complaints("check", "metrics", text=page)
