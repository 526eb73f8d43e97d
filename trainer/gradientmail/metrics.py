"""Every metric of the trainer, declared once.

What the training loop does is read from the node's progress when Prometheus asks, so counting
costs the loop nothing. Requests, claims and loads are timed on the threads that make them. Every
sample carries the labels namespace, run and node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gradientmail.mailbox import Request
from gradientmail.mailbox.base import Operation, Outcome
from gradientmail.progress import ExchangeProgress, NodeProgress

COMMON = ("namespace", "run", "node")
OUTCOMES: dict[Operation, tuple[Outcome, ...]] = {
    "put_if_absent": ("ok", "exists", "unavailable", "error"),
    "get": ("ok", "missing", "unavailable", "error"),
    "list": ("ok", "unavailable", "error"),
    "delete": ("ok", "unavailable", "error"),
}
"""How each operation can end."""
FRAGMENTS_SHOWN = 16
"""Fragments of the exchange that have a series of their own."""
OTHERS = "others"
"""In place of a fragment's number: the oldest version of all further fragments."""
REQUEST_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CLAIM_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0)
LOAD_BUCKETS = (0.01, 0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


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
    combinations: int = 1
    """Most combinations of values that its labels have: for one node, for one run, or for one controller."""

    @property
    def exported(self) -> str:
        """The name that Prometheus shows; a histogram's ends with _bucket, _sum or _count besides."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def most_series(self) -> int:
        """Most series: a histogram has one for each bucket, the last one without bound, its sum and its count."""
        return self.combinations * (len(self.buckets) + 3 if self.kind == "histogram" else 1)


UNITS = Metric("gradientmail_units", "gauge", "Units of the run's data grid, over all nodes.")
CLAIMED = Metric("gradientmail_units_claimed", "counter", "Units that this node owns.")
CONSUMED = Metric(
    "gradientmail_units_consumed", "counter", "Units that this node has trained; their receipts are written."
)
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
    combinations=sum(map(len, OUTCOMES.values())),
)
REQUEST_SECONDS = Metric(
    "gradientmail_mailbox_request_seconds",
    "histogram",
    "Duration of requests to the mailbox, retries included.",
    "seconds",
    ("operation",),
    REQUEST_BUCKETS,
    combinations=len(OUTCOMES),
)

CONTRIBUTIONS = Metric(
    "gradientmail_exchange_contributions", "counter", "Contributions published; each fragment's rounds count."
)
MERGED = Metric("gradientmail_exchange_merged", "counter", "Contributions that an adopted version holds.")
MISSED = Metric(
    "gradientmail_exchange_missed",
    "counter",
    "Contributions that came too late or were refused; their work was offered again.",
)
ADOPTED = Metric("gradientmail_exchange_versions_adopted", "counter", "Versions adopted.")
SKIPPED = Metric(
    "gradientmail_exchange_versions_skipped", "counter", "Versions passed over because a newer one was there."
)
CLOSED = Metric("gradientmail_exchange_rounds_closed", "counter", "Rounds that this node merged and tried to close.")
REFUSED = Metric("gradientmail_exchange_refused", "counter", "Objects refused as damaged or foreign.")
SENT = Metric("gradientmail_exchange_sent_bytes", "counter", "Bytes of parameters written to the mailbox.", "bytes")
RECEIVED = Metric(
    "gradientmail_exchange_received_bytes", "counter", "Bytes of parameters read from the mailbox.", "bytes"
)
EXCHANGE_REQUESTS = Metric("gradientmail_exchange_requests", "counter", "Requests of the exchange to the mailbox.")
BLOCKED = Metric(
    "gradientmail_exchange_blocked_seconds",
    "counter",
    "Time that the training loop spent in the exchange.",
    "seconds",
)
VERSION = Metric(
    "gradientmail_exchange_version",
    "gauge",
    f"Version of the parameters held, by fragment; beyond {FRAGMENTS_SHOWN} fragments, the oldest one as others.",
    labels=("fragment",),
    combinations=FRAGMENTS_SHOWN + 1,
)
STALENESS = Metric(
    "gradientmail_exchange_staleness_steps",
    "gauge",
    "Own steps between contributing to the version adopted last and its adoption.",
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
    CONTRIBUTIONS,
    MERGED,
    MISSED,
    ADOPTED,
    SKIPPED,
    CLOSED,
    REFUSED,
    SENT,
    RECEIVED,
    EXCHANGE_REQUESTS,
    BLOCKED,
    VERSION,
    STALENESS,
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

EXCHANGE_AT_SCRAPE: tuple[tuple[Metric, Callable[[ExchangeProgress], float]], ...] = (
    (CONTRIBUTIONS, lambda exchange: exchange.contributions),
    (MERGED, lambda exchange: exchange.merged),
    (MISSED, lambda exchange: exchange.missed),
    (ADOPTED, lambda exchange: exchange.adopted),
    (SKIPPED, lambda exchange: exchange.skipped),
    (CLOSED, lambda exchange: exchange.closed),
    (REFUSED, lambda exchange: exchange.refused),
    (SENT, lambda exchange: exchange.sent_bytes),
    (RECEIVED, lambda exchange: exchange.received_bytes),
    (EXCHANGE_REQUESTS, lambda exchange: exchange.requests),
    (BLOCKED, lambda exchange: exchange.blocked_seconds),
    (STALENESS, lambda exchange: exchange.staleness_steps),
)
"""What is taken from its exchange; a node that exchanges nothing has none of it."""


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
        # The time at which a series began is a second series for each one, and nothing here reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_AtScrape(labels, units, progress))
        self._common = tuple(labels.as_dict()[name] for name in COMMON)
        self._requests = Counter(REQUESTS.name, REQUESTS.help, (*COMMON, *REQUESTS.labels), registry=self.registry)
        self._request_seconds = self._histogram(REQUEST_SECONDS)
        for operation, outcomes in OUTCOMES.items():  # from 0 on, so that the first error counts as a rise
            for outcome in outcomes:
                self._requests.labels(*self._common, operation, outcome)
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
        exchange = progress.exchange
        yield self._family(UNITS, self._units)
        for metric, value in READ_AT_SCRAPE:
            yield self._family(metric, value(progress))
        for metric, count in EXCHANGE_AT_SCRAPE:
            yield self._family(metric, None if exchange is None else count(exchange))
        yield self._versions(exchange.versions if exchange else ())

    def _family(self, metric: Metric, value: float | None) -> Family:
        family = Family(metric.name, metric.help, metric.kind, metric.unit)
        if value is not None:
            family.add_sample(metric.exported, self._labels, value)
        return family

    def _versions(self, versions: Sequence[int]) -> Family:
        family = self._family(VERSION, None)
        shown = {str(fragment): version for fragment, version in enumerate(versions[:FRAGMENTS_SHOWN])}
        if len(versions) > FRAGMENTS_SHOWN:
            shown[OTHERS] = min(versions[FRAGMENTS_SHOWN:])
        for fragment, version in shown.items():
            family.add_sample(VERSION.name, {**self._labels, "fragment": fragment}, version)
        return family
