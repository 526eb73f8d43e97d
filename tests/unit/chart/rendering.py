"""Rendering the chart with helm itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "gradientmail"
RELEASE = "trial"
NAMESPACE = "system"
OLDEST_KUBERNETES = "1.30.0"
HELM_SECONDS = 30.0

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Rendered:
    """The chart's objects, tests included."""

    objects: tuple[Object, ...]

    def of_kind(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        (found,) = [found for found in self.of_kind(kind) if found["metadata"]["name"] == name]
        return found

    def kinds(self) -> list[str]:
        return sorted(found["kind"] for found in self.objects if not is_test(found))


def is_test(found: Object) -> bool:
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


@dataclass(frozen=True)
class Helm:
    """The helm program; every call ends within 30 s."""

    program: Path

    def render(self, *settings: str, release: str = RELEASE) -> Rendered:
        return Rendered(_rendered(self.program, settings, release))

    def refusal(self, *settings: str, kubernetes: str = OLDEST_KUBERNETES) -> str:
        done = _template(self.program, settings, RELEASE, kubernetes)
        assert done.returncode == 1, "helm took values that it should refuse"
        return done.stderr

    def notes(self, *settings: str) -> str:
        with TemporaryDirectory() as folder:
            chart = _with_notes_as_object(Path(folder) / "chart")
            done = _template(self.program, settings, RELEASE, OLDEST_KUBERNETES, chart)
        assert done.returncode == 0, done.stderr
        (found,) = [found for found in yaml.safe_load_all(done.stdout) if found and found["kind"] == "Notes"]
        return str(found["text"])

    def lint(self, *settings: str) -> str:
        done = _helm(
            self.program, ["lint", str(CHART), "--strict", "--kube-version", OLDEST_KUBERNETES, *_set(settings)]
        )
        return done.stdout + done.stderr


def _with_notes_as_object(folder: Path) -> Path:
    """A copy of the chart: `helm template` shows no notes, and `helm install` shows them only with a cluster."""
    shutil.copytree(CHART, folder)
    shutil.move(folder / "templates" / "NOTES.txt", folder)
    notes = 'apiVersion: test/v1\nkind: Notes\ntext: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n'
    (folder / "templates" / "notes.yaml").write_text(notes)
    return folder


@cache
def _rendered(program: Path, settings: tuple[str, ...], release: str) -> tuple[Object, ...]:
    done = _template(program, settings, release, OLDEST_KUBERNETES)
    assert done.returncode == 0, done.stderr
    return tuple(found for found in yaml.safe_load_all(done.stdout) if found)


def _template(
    program: Path, settings: Sequence[str], release: str, kubernetes: str, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    options = ["--namespace", NAMESPACE, "--kube-version", kubernetes]
    return _helm(program, ["template", release, str(chart), *options, *_set(settings)])


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set-json", setting)]


def _helm(program: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=HELM_SECONDS, check=False)
