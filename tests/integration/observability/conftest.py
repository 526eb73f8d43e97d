from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.observability.scene import ROOT, Scene, watched_run
from tests.promtool import Promtool
from tests.servers import CREDENTIALS

RULES = ROOT / "charts" / "gradientmail" / "files" / "rules.yaml"


def evaluated_each_second(rules: Path, copy: Path) -> Path:
    """Write a copy of the rules that a short run can wait for."""
    document = yaml.safe_load(rules.read_text())
    for group in document["groups"]:
        group["interval"] = "1s"
    copy.write_text(yaml.safe_dump(document))
    return copy


@pytest.fixture(scope="session")
def scene(promtool: Promtool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A run that has been seen by Prometheus from its first batch to a stand after a kill and an outage."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        rules = evaluated_each_second(RULES, folder / "rules.yaml")
        with watched_run(promtool.program.with_name("prometheus"), folder, rules) as seen:
            yield seen
