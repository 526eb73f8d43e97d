"""Train for some minutes as Prometheus watches, with a killed node and an outage; draw the panels of docs/images.

`python -m hack.dashboards.example FOLDER` writes the pictures there: docs/images for the documentation.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hack.dashboards.pictures import Seen, draw_all

from tests.integration.observability.scene import MANIFEST, NAME, NAMESPACE, NO_LIMIT, Nodes, Stage, outage, staged

PACES = {"a-0": 0.25, "b-0": 0.5, "c-0": 0.5, "d-0": 1.0}
"""Seconds a batch: speeds of 4:2:2:1."""
FIRST = ("a-0.1", "b-0.1", "c-0.1", "d-0.1")
AGAIN = "c-0.2"
STEPS, UNIT_STEPS, LANES = 480, 8, 4
UNITS = STEPS // UNIT_STEPS * LANES
KILL_AT, OUTAGE_AT = 0.2, 0.55
"""Shares of the units consumed."""
OUTAGE_SECONDS = 40.0
SCRAPE_SECONDS = 2.0


def manifest() -> dict[str, Any]:
    """Return a run of 240 units on four nodes."""
    spec = MANIFEST["spec"]
    data = {"steps": STEPS, "batch": 8, "lanes": LANES, "unitSteps": UNIT_STEPS}
    trainer = {**spec["trainer"], "prefetch": 8, "exchange": {**spec["trainer"]["exchange"], "syncEvery": 20}}
    nodes = [{"name": name} for name in "abcd"]
    return {**MANIFEST, "spec": {**spec, "data": data, "trainer": trainer, "nodes": nodes}}


def play(stage: Stage) -> Seen:
    """Run until a node has ended. One was killed and started again, and for a while there was no store."""
    scene, nodes = stage.scene, stage.nodes
    nodes.hold_back_from(NO_LIMIT)
    for learner in FIRST:
        nodes.start(learner)
    _until(nodes, stage, "sum(gradientmail_claim_seconds_count) >= 4", "a claim by each node")
    start = time.time()
    _until(nodes, stage, _consumed(KILL_AT), "the first fifth")
    killed = time.time()
    nodes.kill("c-0.1")
    nodes.start(AGAIN)
    _until(nodes, stage, _consumed(OUTAGE_AT), "the middle")
    away = time.time()
    with outage(stage.store):
        time.sleep(OUTAGE_SECONDS)
    while all(process.poll() is None for process in nodes.processes.values()):
        time.sleep(0.2)
    print(f"killed after {killed - start:.0f} s, no store after {away - start:.0f} s for {OUTAGE_SECONDS:.0f} s")
    return Seen(scene.prometheus, NAMESPACE, NAME, start, time.time())


def _consumed(share: float) -> str:
    return f"sum(last_over_time(gradientmail_units_consumed_total[30m])) >= {share * UNITS}"


def _until(nodes: Nodes, stage: Stage, expression: str, what: str) -> None:
    nodes.until(lambda: stage.scene.prometheus.instant(expression), what)


def main() -> int:
    """Run it and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    arguments = parser.parse_args()
    program = shutil.which("prometheus")
    if program is None:
        print("prometheus is missing: apt-get install --no-install-recommends prometheus", file=sys.stderr)
        return 2
    with (
        TemporaryDirectory() as folder,
        staged(Path(program), Path(folder), [], manifest(), PACES, (*FIRST, AGAIN), SCRAPE_SECONDS) as stage,
    ):
        for path in draw_all(play(stage), arguments.folder):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
