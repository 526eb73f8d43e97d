"""What a scrape costs: a trainer's page with every series that there can be, and the controller's with 200 runs."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from statistics import median

from prometheus_client import generate_latest

from bench.figures import Figure, show
from gradientmail.mailbox import Request
from gradientmail.metrics import METRICS, OUTCOMES, Labels, TrainerMetrics
from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.run_status import NODES_LISTED
from gradientmail.training.serving import serving
from gradientrun.metrics import METRICS_OF_RUNS, Metrics

SCRAPES = 200
RUNS = 200


def a_node() -> TrainerMetrics:
    """Return the metrics of a node that has done everything that it can."""
    exchange = ExchangeProgress(versions=tuple(range(32)))
    progress = NodeProgress("l", "a-0", step=1, loss=2.5, held_out_loss=2.6, exchange=exchange)
    metrics = TrainerMetrics(Labels("team", "first", "a-0"), units=800, progress=lambda: progress)
    for operation, outcomes in OUTCOMES.items():
        for outcome in outcomes:
            metrics.request(Request(operation, outcome, 0.03, 1))
    return metrics


def a_finished_run(number: int) -> dict[str, object]:
    """Return a run of as many nodes as a status lists."""
    names = [f"a-{index}" for index in range(NODES_LISTED)]
    status = {
        "phase": "Succeeded",
        "attempt": 1,
        "units": {"total": 800, "claimed": 800, "consumed": 800, "lost": 0},
        "nodes": [{"name": name, "phase": "Succeeded"} for name in names],
        "learners": [{"node": name, "pod": "", "claimed": 16, "consumed": 16} for name in names],
    }
    return {"metadata": {"namespace": "team", "name": f"run-{number}"}, "spec": {}, "status": status}


def milliseconds(scrape: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median duration."""
    taken = []
    for _ in range(times):
        start = clock()
        scrape()
        taken.append(1000 * (clock() - start))
    return median(taken)


def trainer() -> Figure:
    """Time a scrape of a trainer over HTTP."""
    with serving(0, a_node().registry, {}) as port:

        def scrape() -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return bytes(answer.read())

        taken = milliseconds(scrape, SCRAPES)
    series = sum(metric.most_series for metric in METRICS)
    return Figure(f"scrape of a trainer, {series} series", f"{taken:.1f} ms", "under 5 ms", taken < 5)


def controller() -> Figure:
    """Measure the processor time of the controller's page, which is made in a thread of its own."""
    runs = [a_finished_run(number) for number in range(RUNS)]
    metrics = Metrics()
    metrics.show(lambda: runs)
    taken = milliseconds(lambda: generate_latest(metrics.registry), 5, time.thread_time)
    series = sum(metric.most_series for metric in METRICS_OF_RUNS)
    what = f"controller's page, {RUNS} runs of {NODES_LISTED} nodes, up to {series} series each"
    return Figure(what, f"{taken:.0f} ms of processor time", "under 500 ms", taken < 500)


if __name__ == "__main__":
    show([trainer(), controller()])
