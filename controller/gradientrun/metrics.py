"""Every metric of the controller, declared once.

Those of runs are read from the runs' statuses when Prometheus asks. A status keeps the final figures,
so they outlive pods and restarts of the controller, and end when the run is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gradientmail.metrics import Metric
from gradientmail.run import Spec
from gradientmail.run_status import NODES_LISTED
from gradientrun.accounts import most_lost, read_records
from gradientrun.runs import Manifest, read_time
from gradientrun.verdict import condition

PHASES = ("Pending", "Running", "Suspended", "Succeeded", "Failed")
STATES = ("total", "claimed", "consumed", "lost")
ERRORS = ("conflict", "unavailable", "refused", "fault")
RUN = ("namespace", "run")
OTHERS = "others"
"""In place of a node's name: all nodes that the status does not list, summed."""
MOST_LOST: str = Spec.model_fields["max_lost_units"].default
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

INFO = Metric(
    "gradientrun_info",
    "gauge",
    "Always 1: what the run trains and where its mailbox is.",
    labels=("image", "task", "prefix", "attempt"),
)
PHASE = Metric(
    "gradientrun_phase",
    "gauge",
    "1 for the phase that the run is in, 0 for the others.",
    labels=("phase",),
    combinations=len(PHASES),
)
UNITS = Metric(
    "gradientrun_units",
    "gauge",
    "Units of the run by state: total, claimed, consumed, lost. The figures of a finished run are final.",
    labels=("state",),
    combinations=len(STATES),
)
LOST_LIMIT = Metric(
    "gradientrun_lost_units_limit", "gauge", "Units that may be lost before the run fails: spec.maxLostUnits."
)
NODES = Metric(
    "gradientrun_nodes", "gauge", "Nodes of the run by state: wanted, running.", labels=("state",), combinations=2
)
STALLED = Metric("gradientrun_stalled", "gauge", "1 while something keeps a node from running: the condition Stalled.")
STARTED = Metric(
    "gradientrun_start_time_seconds", "gauge", "When the attempt was accepted, in seconds since 1970.", "seconds"
)
COMPLETED = Metric(
    "gradientrun_completion_time_seconds", "gauge", "When the attempt ended, in seconds since 1970.", "seconds"
)
REMAINING = Metric(
    "gradientrun_estimated_remaining_seconds", "gauge", "Time to the end at the present pace, once known.", "seconds"
)
NODE_UNITS = Metric(
    "gradientrun_node_units",
    "gauge",
    "Units of a node by state (claimed, consumed), over all its pods, which they outlive. "
    "Nodes that a large run's status does not list are summed as node others.",
    labels=("node", "state"),
    combinations=2 * (NODES_LISTED + 1),
)
NODE_RESTARTS = Metric(
    "gradientrun_node_restarts",
    "gauge",
    "How often a node was started again in this attempt.",
    labels=("node",),
    combinations=NODES_LISTED,
)

RECONCILE_SECONDS = Metric(
    "gradientrun_reconcile_seconds",
    "histogram",
    "Time to reconcile one run once, reading its nodes' counts included.",
    "seconds",
    buckets=RECONCILE_BUCKETS,
)
RECONCILE_ERRORS = Metric(
    "gradientrun_reconcile_errors",
    "counter",
    "Reconciles that ended with an error, by kind: conflict, unavailable, refused, fault.",
    labels=("kind",),
    combinations=len(ERRORS),
)
REQUESTS = Metric(
    "gradientrun_kubernetes_requests",
    "counter",
    "Answers of the API server to the controller, watches aside; code is unreachable where none came.",
    labels=("verb", "resource", "code"),
    combinations=15 * 14,  # kinds of requests that it makes, times codes that the API server has; some 30 are seen
)
QUEUE_RUNS = Metric("gradientrun_queue_runs", "gauge", "Runs that are being reconciled or have a time set for it.")
QUEUE_WAIT = Metric(
    "gradientrun_queue_wait_seconds",
    "gauge",
    "How long the run longest due or longest in work has been so; it stays near 0 while the controller keeps up.",
    "seconds",
)

METRICS_OF_RUNS = (
    INFO, PHASE, UNITS, LOST_LIMIT, NODES, STALLED, STARTED, COMPLETED, REMAINING, NODE_UNITS, NODE_RESTARTS,
)  # fmt: skip
METRICS_OF_THE_CONTROLLER = (RECONCILE_SECONDS, RECONCILE_ERRORS, REQUESTS, QUEUE_RUNS, QUEUE_WAIT)
METRICS = (*METRICS_OF_RUNS, *METRICS_OF_THE_CONTROLLER)

Samples = Iterator[tuple[tuple[str, ...], float]]
"""Values of a metric's labels, and the sample's."""


class Metrics:
    """What the controller counts, in a registry of its own. For one event loop."""

    def __init__(self) -> None:
        # The time at which a series began is a second series for each one, and nothing here reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.reconcile_seconds = Histogram(
            RECONCILE_SECONDS.name, RECONCILE_SECONDS.help, buckets=RECONCILE_SECONDS.buckets, registry=self.registry
        )
        self.reconcile_errors = _counter(RECONCILE_ERRORS, self.registry)
        for kind in ERRORS:  # so that the first error counts as a rise
            self.reconcile_errors.labels(kind)
        self.requests = _counter(REQUESTS, self.registry)

    def count_request(self, verb: str, resource: str, code: str) -> None:
        """Count an answer of the API server."""
        self.requests.labels(verb, resource, code).inc()

    def show(self, runs: Callable[[], Iterable[Manifest]]) -> None:
        """Show metrics of these runs, asked for anew at each scrape."""
        self.registry.register(RunCollector(runs))

    def show_queue(self, length: Callable[[], float], waited: Callable[[], float]) -> None:
        """Show how many runs are queued, and for how long the first of them has been due, in seconds."""
        for metric, read in ((QUEUE_RUNS, length), (QUEUE_WAIT, waited)):
            Gauge(metric.name, metric.help, registry=self.registry).set_function(read)


def _counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


class RunCollector(Collector):
    """Metrics of runs from their statuses."""

    def __init__(self, runs: Callable[[], Iterable[Manifest]]) -> None:
        self._runs = runs

    def describe(self) -> Iterable[Family]:
        """Return nothing: names are known when asked for."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the metrics of all runs."""
        runs = list(self._runs())
        for metric, read in READ_AT_SCRAPE:
            family = Family(metric.name, metric.help, metric.kind, metric.unit)
            for run in runs:
                _add(family, metric, run, read(run))
            yield family


def _add(family: Family, metric: Metric, run: Manifest, samples: Samples) -> None:
    names = (*RUN, *metric.labels)
    key = (run["metadata"]["namespace"], run["metadata"]["name"])
    for labels, value in samples:
        family.add_sample(metric.name, dict(zip(names, (*key, *labels), strict=True)), value)


def _status(run: Manifest) -> Mapping[str, Any]:
    return run.get("status") or {}


def _units(run: Manifest) -> Mapping[str, int]:
    return _status(run).get("units") or {}


def _info(run: Manifest) -> Samples:
    trainer, status = (run.get("spec") or {}).get("trainer") or {}, _status(run)
    values = (trainer.get("image"), trainer.get("task"), status.get("mailboxPrefix"), status.get("attempt"))
    yield tuple(str(value or "") for value in values), 1.0


def _phase(run: Manifest) -> Samples:
    for name in PHASES:
        yield (name,), float(_status(run).get("phase") == name)


def _run_units(run: Manifest) -> Samples:
    for state in STATES:
        yield (state,), _units(run).get(state, 0)


def _lost_limit(run: Manifest) -> Samples:
    limit = (run.get("spec") or {}).get("maxLostUnits", MOST_LOST)
    if "total" in _units(run):
        yield (), most_lost(str(limit), _units(run)["total"])


def _nodes(run: Manifest) -> Samples:
    yield ("wanted",), _status(run).get("nodesWanted", 0)
    yield ("running",), _status(run).get("nodesRunning", 0)


def _stalled(run: Manifest) -> Samples:
    yield (), float(condition(_status(run), "Stalled").get("status") == "True")


def _time(field: str) -> Callable[[Manifest], Samples]:
    def read(run: Manifest) -> Samples:
        if _status(run).get(field):
            yield (), read_time(_status(run)[field]).timestamp()

    return read


def _remaining(run: Manifest) -> Samples:
    if "estimatedRemainingSeconds" in _status(run):
        yield (), _status(run)["estimatedRemainingSeconds"]


def _node_units(run: Manifest) -> Samples:
    """Sum the records, not the nodes that are listed: those leave out nodes that have been removed since."""
    names = {node["name"] for node in _status(run).get("nodes") or []}
    sums = dict.fromkeys(sorted(names), (0, 0))
    for record in read_records(_status(run)):
        name = record.node if record.node in names else OTHERS
        claimed, consumed = sums.get(name, (0, 0))
        sums[name] = (claimed + record.claimed, consumed + record.consumed)
    for name, (claimed, consumed) in sums.items():
        yield (name, "claimed"), claimed
        yield (name, "consumed"), consumed


def _node_restarts(run: Manifest) -> Samples:
    for node in _status(run).get("nodes") or []:
        yield (node["name"],), node.get("restarts", 0)


READ_AT_SCRAPE: tuple[tuple[Metric, Callable[[Manifest], Samples]], ...] = (
    (INFO, _info),
    (PHASE, _phase),
    (UNITS, _run_units),
    (LOST_LIMIT, _lost_limit),
    (NODES, _nodes),
    (STALLED, _stalled),
    (STARTED, _time("startTime")),
    (COMPLETED, _time("completionTime")),
    (REMAINING, _remaining),
    (NODE_UNITS, _node_units),
    (NODE_RESTARTS, _node_restarts),
)
"""What is taken from a run, and how."""
