"""The tests' hands on the machine: `hack/cluster`, kubectl and helm, as a person would call them.

Every call has a time-out. A call that fails raises CommandFailed with what it printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FIRST_UP_SECONDS = 1800.0
BUILD_SECONDS = 900.0
KUBECTL_SECONDS = 180.0
HELM_SECONDS = 600.0
TOOL_SECONDS = 360.0
NONE_UP = "No cluster is up."


class CommandFailed(Exception):
    """A program ended with another status than 0; the text is what it said."""


def call(
    command: Sequence[str | Path],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    show: bool = False,
    both: bool = False,
) -> str:
    """Run a program and return its standard output, and with `both` its standard error as well.

    With `show`, what it says on standard error is seen at once.
    """
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{_words(command)} did not end within {seconds:.0f} s") from error
    if done.returncode:
        raise CommandFailed(f"{_words(command)}: {done.stdout.strip()} {(done.stderr or '').strip()}")
    return done.stdout + (done.stderr if both else "")


def _words(command: Sequence[str | Path]) -> str:
    words = [str(word) for word in command]
    return " ".join(word if len(word) < 80 else f"{word[:77]}…" for word in words)


@dataclass(frozen=True)
class Tool:
    """`python3 hack/cluster`."""

    def __call__(self, *words: str, seconds: float = TOOL_SECONDS, show: bool = False) -> str:
        return call([sys.executable, "hack/cluster", *words], seconds=seconds, show=show)

    def is_up(self) -> bool:
        """Whether a cluster runs already."""
        return NONE_UP not in self("status")

    @cached_property
    def provider(self) -> str:
        """bare, kind or existing."""
        first = self("status").splitlines()[0]
        return first.removeprefix("provider: ")

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment in which kubectl and helm find the cluster, and can be found."""
        script = 'eval "$(cat)" && printf "%s\\n%s\\n" "$KUBECONFIG" "$PATH"'
        kubeconfig, path = call(["bash", "-c", script], seconds=10, stdin=self("env")).splitlines()
        return {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path}


@dataclass(frozen=True)
class Kubectl:
    """kubectl as the cluster's administrator."""

    environment: Mapping[str, str]

    def __call__(self, *words: str, stdin: str | None = None, seconds: float = KUBECTL_SECONDS) -> str:
        return call(["kubectl", *words], seconds=seconds, environment=self.environment, stdin=stdin)

    def refusal(self, *words: str, stdin: str | None = None) -> str:
        """Return what kubectl says when it refuses; fails if it does not."""
        try:
            self(*words, stdin=stdin)
        except CommandFailed as error:
            return str(error)
        raise AssertionError(f"kubectl {' '.join(words)} was taken, and should not have been")

    def apply(self, namespace: str, *objects: Mapping[str, Any]) -> str:
        """Apply objects as `kubectl apply -f` does."""
        text = yaml.safe_dump_all([dict(each) for each in objects])
        return self("--namespace", namespace, "apply", "--filename", "-", stdin=text)


@dataclass(frozen=True)
class Helm:
    """helm as the cluster's administrator; returns all that it says, for the logs of tests are not on its output."""

    environment: Mapping[str, str]

    def __call__(self, *words: str, values: Mapping[str, Any] | None = None, seconds: float = HELM_SECONDS) -> str:
        given = ["--values", "-"] if values is not None else []
        text = yaml.safe_dump(dict(values)) if values is not None else None
        return call(["helm", *words, *given], seconds=seconds, environment=self.environment, stdin=text, both=True)
