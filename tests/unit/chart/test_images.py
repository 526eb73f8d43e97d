from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.unit.chart.rendering import CHART, ROOT

DOCKERFILES = ["Dockerfile.trainer", "Dockerfile.controller"]


def instructions(name: str) -> list[str]:
    """One instruction a line, comments left out."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line]


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_run_as_the_user_that_the_chart_names(name: str) -> None:
    context = values()["podSecurityContext"]
    user = f"{context['runAsUser']}:{context['runAsGroup']}"
    assert [line for line in instructions(name) if line.startswith("USER ")] == [f"USER {user}"]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_every_stage_starts_from_the_base_that_was_asked_for(name: str) -> None:
    started = [line.split()[1] for line in instructions(name) if line.startswith("FROM ")]
    assert instructions(name)[0] == "ARG BASE=docker.io/library/python:3.11-slim-bookworm"
    assert set(started) == {"${BASE}", "tools"}
    assert started[-1] == "${BASE}"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dependencies_are_locked_and_come_before_the_program(name: str) -> None:
    steps = instructions(name)
    installs = [line for line in steps if "pip --python" in line]
    copies = [line for line in steps if line.startswith("COPY --from=")]
    assert len(installs) == 2
    assert all("install --no-deps" in line for line in installs)
    assert "--requirement" in installs[0]
    assert copies[0] == "COPY --from=dependencies /opt/gradientmail /opt/gradientmail"
    assert copies[-1] == "COPY --from=application /staging/opt/gradientmail /opt/gradientmail"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_no_address_is_written_down(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


@pytest.mark.parametrize("lock", ["core.txt", "trainer.txt", "controller.txt"])
def test_locks_pin_every_version_and_name_no_index(lock: str) -> None:
    lines = (ROOT / "requirements" / lock).read_text().splitlines()
    assert [line for line in lines if not re.match(r"^[a-z0-9-]+==[^ ]+( ; .+)?$", line)] == []
