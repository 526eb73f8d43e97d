"""Write docs/metrics.md from the declarations of the metrics.

`python hack/metrics_page.py` writes it, `--check` only says whether it is up to date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gradientmail.metrics import COMMON, METRICS, Metric
from gradientrun.metrics import METRICS_OF_RUNS, METRICS_OF_THE_CONTROLLER, RUN

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/metrics.md"

PAGE = """\
# Metrics

<!-- Made by `make metrics` from gradientmail.metrics and gradientrun.metrics: change those, not this. -->

Every metric there is. [observability.md](observability.md) says how they are scraped and which question each answers.
*Series* is the most that there can be: of one node, of one run, or of the controller. A histogram has one for each
bucket, its sum and its count, under the names that end with `_bucket`, `_sum` and `_count`.

## Of a trainer

Each node serves them itself. All have the labels {common} besides those below, and a node has at most
**{trainer} series**. They end with the pod: a node that is started again counts from 0.

{trainer_rows}
Metrics of the exchange are there only where the node exchanges parameters.

## Of a run

The controller serves them from the runs' statuses. All have the labels {run} besides those below, and a run has at most
**{runs} series**, however many nodes it has: its status lists 50. They outlive the pods and the controller's restarts:
the figures of a finished run are final, and go when the run is deleted.

{run_rows}
## Of the controller

At most **{controller} series**, whatever runs there are, and those of its process (`process_cpu_seconds_total`,
`process_resident_memory_bytes` and so on).

{controller_rows}"""

HEAD = "| metric | type | unit | labels | series | meaning |\n|---|---|---|---|---|---|\n"


def document() -> str:
    """Return docs/metrics.md."""
    return PAGE.format(
        common=_names(COMMON),
        run=_names(RUN),
        trainer=_most(METRICS),
        runs=_most(METRICS_OF_RUNS),
        controller=_most(METRICS_OF_THE_CONTROLLER),
        trainer_rows=HEAD + "".join(_rows(METRICS)),
        run_rows=HEAD + "".join(_rows(METRICS_OF_RUNS)),
        controller_rows=HEAD + "".join(_rows(METRICS_OF_THE_CONTROLLER)),
    )


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        cells = (f"`{metric.exported}`", metric.kind, metric.unit, labels, str(metric.most_series), metric.help)
        yield f"| {' | '.join(cells)} |\n"


def _names(labels: Iterable[str]) -> str:
    *first, last = (f"`{label}`" for label in labels)
    return f"{', '.join(first)} and {last}"


def _most(metrics: Iterable[Metric]) -> int:
    return sum(metric.most_series for metric in metrics)


def main() -> int:
    """Write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the document is stale")
    arguments = parser.parse_args()
    if DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == document():
        return 0
    if arguments.check:
        print(f"{DOCUMENT.relative_to(ROOT)} is stale: run `make metrics`", file=sys.stderr)
        return 1
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
