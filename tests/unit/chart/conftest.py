from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.chart.rendering import ROOT, Helm

BUILD_SECONDS = 1800.0
ENSURE_HELM = "from testcluster import binaries; print(binaries.ensure(binaries.HELM))"


@pytest.fixture(scope="session")
def helm() -> Helm:
    """helm of the version that the test cluster uses; built on its first use, some minutes, then cached."""
    found = subprocess.run(
        [sys.executable, "-c", ENSURE_HELM],
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack" / "cluster")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=BUILD_SECONDS,
        check=True,
    )
    return Helm(Path(found.stdout.strip()) / "helm")
