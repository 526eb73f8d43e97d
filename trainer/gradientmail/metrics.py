"""Every metric of the trainer, declared once.

What the training loop does is read from the node's progress when Prometheus asks, so counting
costs the loop nothing. Requests, claims and loads are timed on the threads that make them. Every
sample carries the labels namespace, run and node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gradientmail.mailbox import Request
from gradientmail.progress import NodeProgress

COMMON = ("namespace", "run", "node")
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CLAIM_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0)
LOAD_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


@dataclass(frozen=True)
class Metric:
    """A metric's declaration. Counters are exported under `{name}_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    unit: str = ""
    """The base unit that the name ends with, where Prometheus has one."""
    labels: tuple[str, ...] = ()
    """Besides namespace, run and node."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""


UNITS = Metric("gradientmail_units", "gauge", "Units of the run's data grid, over all nodes.")
CLAIMED = Metric("gradientmail_units_claimed", "counter", "Units that this node owns.")
CONSUMED = Metric("gradientmail_units_consumed", "counter", "Units that this node has trained to their last batch.")
CONFLICTS = Metric("gradientmail_claim_conflicts", "counter", "Units that this node tried and another one owned.")
BUFFERED = Metric("gradientmail_buffered_batches", "gauge", "Batches loaded and not yet taken by the training loop.")
BATCHES = Metric("gradientmail_batches", "counter", "Batches trained: optimizer steps of this node.")
SAMPLES = Metric("gradientmail_samples", "counter", "Tokens trained.")
WAIT = Metric("gradientmail_wait_seconds", "counter", "Time that the training loop waited for data.", "seconds")
TRAIN = Metric("gradientmail_train_seconds", "counter", "Time that the training loop spent on batches.", "seconds")
STEP = Metric("gradientmail_step", "gauge", "Dataset step of the last batch.")
LOSS = Metric("gradientmail_loss", "gauge", "Training loss of the last logged step, in nats per token.")
HELD_OUT = Metric("gradientmail_held_out_loss", "gauge", "Latest loss on held-out data, in nats per token.")
CLAIM_SECONDS = Metric(
    "gradientmail_claim_seconds", "histogram", "Time from seeking a unit to owning it.", "seconds", (), CLAIM_BUCKETS
)
LOAD_SECONDS = Metric(
    "gradientmail_load_seconds", "histogram", "Time spent on loading a unit's batches.", "seconds", (), LOAD_BUCKETS
)
REQUESTS = Metric(
    "gradientmail_mailbox_requests",
    "counter",
    "Requests to the mailbox by operation (put_if_absent, get, list, delete) and outcome "
    "(ok, exists, missing, unavailable, error).",
    labels=("operation", "outcome"),
)
REQUEST_SECONDS = Metric(
    "gradientmail_mailbox_request_seconds",
    "histogram",
    "Duration of requests to the mailbox, retries included.",
    "seconds",
    ("operation",),
    REQUEST_BUCKETS,
)

METRICS = (
    UNITS,
    CLAIMED,
    CONSUMED,
    CONFLICTS,
    BUFFERED,
    BATCHES,
    SAMPLES,
    WAIT,
    TRAIN,
    STEP,
    LOSS,
    HELD_OUT,
    CLAIM_SECONDS,
    LOAD_SECONDS,
    REQUESTS,
    REQUEST_SECONDS,
)

READ_AT_SCRAPE: tuple[tuple[Metric, Callable[[NodeProgress], float | None]], ...] = (
    (CLAIMED, lambda progress: progress.claimed),
    (CONSUMED, lambda progress: progress.consumed),
    (CONFLICTS, lambda progress: progress.conflicts),
    (BUFFERED, lambda progress: progress.buffered),
    (BATCHES, lambda progress: progress.batches),
    (SAMPLES, lambda progress: progress.samples),
    (WAIT, lambda progress: progress.wait_seconds),
    (TRAIN, lambda progress: progress.train_seconds),
    (STEP, lambda progress: progress.step),
    (LOSS, lambda progress: progress.loss),
    (HELD_OUT, lambda progress: progress.held_out_loss),
)
"""What is taken from a node's progress, and how; None is left out."""


@dataclass(frozen=True)
class Labels:
    """The labels that every sample carries."""

    namespace: str
    run: str
    node: str

    def as_dict(self) -> dict[str, str]:
        """Return them by name."""
        return {"namespace": self.namespace, "run": self.run, "node": self.node}


class TrainerMetrics:
    """The metrics of one node. Its methods may be called from any thread and do not block.

    It is an observer of a shared queue, and its `request` one of a mailbox.
    """

    def __init__(self, labels: Labels, *, units: int, progress: Callable[[], NodeProgress]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_AtScrape(labels, units, progress))
        self._common = tuple(labels.as_dict()[name] for name in COMMON)
        self._requests = Counter(REQUESTS.name, REQUESTS.help, (*COMMON, *REQUESTS.labels), registry=self.registry)
        self._request_seconds = self._histogram(REQUEST_SECONDS)
        self._claim_seconds = self._histogram(CLAIM_SECONDS).labels(*self._common)
        self._load_seconds = self._histogram(LOAD_SECONDS).labels(*self._common)

    def request(self, request: Request) -> None:
        """Count a request to the mailbox."""
        self._requests.labels(*self._common, request.operation, request.outcome).inc()
        self._request_seconds.labels(*self._common, request.operation).observe(request.seconds)

    def claimed(self, identifier: str, seconds: float) -> None:  # noqa: ARG002
        """See QueueObserver."""
        self._claim_seconds.observe(seconds)

    def lost(self, identifier: str) -> None:
        """See QueueObserver: conflicts are read from the progress."""

    def loaded(self, identifier: str, batches: int, seconds: float) -> None:  # noqa: ARG002
        """See QueueObserver."""
        self._load_seconds.observe(seconds)

    def consumed(self, identifier: str) -> None:
        """See QueueObserver: units are read from the progress."""

    def _histogram(self, metric: Metric) -> Histogram:
        labels = (*COMMON, *metric.labels)
        return Histogram(metric.name, metric.help, labels, buckets=metric.buckets, registry=self.registry)


class _AtScrape(Collector):
    def __init__(self, labels: Labels, units: int, progress: Callable[[], NodeProgress]) -> None:
        self._labels = labels.as_dict()
        self._units = units
        self._progress = progress

    def collect(self) -> Iterable[Family]:
        progress = self._progress()
        yield self._family(UNITS, self._units)
        for metric, value in READ_AT_SCRAPE:
            yield self._family(metric, value(progress))

    def _family(self, metric: Metric, value: float | None) -> Family:
        family = Family(metric.name, metric.help, metric.kind, metric.unit)
        if value is not None:
            family.add_sample(metric.name + ("_total" if metric.kind == "counter" else ""), self._labels, value)
        return family
