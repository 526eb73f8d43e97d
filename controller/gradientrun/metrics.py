"""The controller's own metrics. Those of runs are read from their statuses when asked for, so they end with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gradientrun.runs import Manifest

PHASES = ("Pending", "Running", "Suspended", "Succeeded", "Failed")
STATES = ("total", "claimed", "consumed", "lost")
RUN = ("namespace", "run")


class Metrics:
    """Counters of the controller, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "gradientrun_reconcile_seconds",
            "Time to reconcile one run once, reading its nodes' counts included.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self.reconcile_errors = Counter(
            "gradientrun_reconcile_errors_total",
            "Reconciles that ended with an error, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self.requests = Counter(
            "gradientrun_kubernetes_requests_total",
            "Answers of the API server to the controller, watches aside; code is unreachable where none came.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )

    def count_request(self, verb: str, resource: str, code: str) -> None:
        """Count an answer of the API server."""
        self.requests.labels(verb, resource, code).inc()

    def show(self, runs: Callable[[], Iterable[Manifest]]) -> None:
        """Show metrics of these runs, asked for anew at each scrape."""
        self.registry.register(RunCollector(runs))


class RunCollector(Collector):
    """Metrics of runs from their statuses."""

    def __init__(self, runs: Callable[[], Iterable[Manifest]]) -> None:
        self._runs = runs

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names are known when asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs."""
        info = InfoMetricFamily("gradientrun", "What a run trains and where its mailbox is.", labels=RUN)
        phase = GaugeMetricFamily("gradientrun_phase", "1 for the phase that a run is in.", labels=[*RUN, "phase"])
        units = GaugeMetricFamily("gradientrun_units", "Units of a run by state.", labels=[*RUN, "state"])
        nodes = GaugeMetricFamily(
            "gradientrun_node_units",
            "Units of a node by state, over all its pods; they outlive the pods.",
            labels=[*RUN, "node", "state"],
        )
        stalled = GaugeMetricFamily("gradientrun_stalled", "1 while something keeps a node from running.", labels=RUN)
        for run in self._runs():
            _add_run(run, info, phase, units, nodes, stalled)
        yield from (info, phase, units, nodes, stalled)


def _add_run(
    run: Manifest,
    info: InfoMetricFamily,
    phase: GaugeMetricFamily,
    units: GaugeMetricFamily,
    nodes: GaugeMetricFamily,
    stalled: GaugeMetricFamily,
) -> None:
    key = [run["metadata"]["namespace"], run["metadata"]["name"]]
    status, trainer = run.get("status") or {}, (run.get("spec") or {}).get("trainer") or {}
    info.add_metric(
        key,
        {
            "image": trainer.get("image", ""),
            "task": trainer.get("task", ""),
            "prefix": status.get("mailboxPrefix", ""),
            "attempt": str(status.get("attempt", "")),
        },
    )
    for name in PHASES:
        phase.add_metric([*key, name], float(status.get("phase") == name))
    for state in STATES:
        units.add_metric([*key, state], (status.get("units") or {}).get(state, 0))
    for node in status.get("nodes") or []:
        for state in ("claimed", "consumed"):
            nodes.add_metric([*key, node["name"], state], node.get(state, 0))
    held = (item["status"] for item in status.get("conditions") or [] if item["type"] == "Stalled")
    stalled.add_metric(key, float("True" in held))
