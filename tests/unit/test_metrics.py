"""The trainer's metrics, as Prometheus reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gradientmail.mailbox import Request
from gradientmail.mailbox.base import Operation, Outcome
from gradientmail.metrics import COMMON, METRICS, OUTCOMES, VERSION, Labels, TrainerMetrics
from gradientmail.progress import ExchangeProgress, NodeProgress
from tests.promtool import Promtool

pytestmark = pytest.mark.timeout(120, func_only=True)  # installing promtool may take longer

PROGRESS = NodeProgress(
    learner="l",
    node="a-0",
    claimed=5,
    consumed=3,
    conflicts=2,
    batches=70,
    samples=4480,
    step=63,
    loss=2.5,
    buffered=8,
    wait_seconds=1.25,
    train_seconds=40.5,
)


def made(progress: NodeProgress = PROGRESS) -> TrainerMetrics:
    return TrainerMetrics(Labels("default", "first", "a-0"), units=800, progress=lambda: progress)


def samples(metrics: TrainerMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and by the labels that are not common to all."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            assert {name: sample.labels[name] for name in COMMON} == {
                "namespace": "default",
                "run": "first",
                "node": "a-0",
            }
            rest = tuple(sorted((name, value) for name, value in sample.labels.items() if name not in COMMON))
            found[sample.name, rest] = sample.value
    return found


def test_progress_is_read_when_asked() -> None:
    values = {name: value for (name, rest), value in samples(made()).items() if not rest and "_seconds_" not in name}
    assert values == {
        "gradientmail_units": 800.0,
        "gradientmail_units_claimed_total": 5.0,
        "gradientmail_units_consumed_total": 3.0,
        "gradientmail_claim_conflicts_total": 2.0,
        "gradientmail_buffered_batches": 8.0,
        "gradientmail_batches_total": 70.0,
        "gradientmail_samples_total": 4480.0,
        "gradientmail_step": 63.0,
        "gradientmail_loss": 2.5,
    }


def test_times_of_the_loop() -> None:
    found = samples(made())
    assert found["gradientmail_wait_seconds_total", ()] == 1.25
    assert found["gradientmail_train_seconds_total", ()] == 40.5


def test_what_a_node_has_exchanged_is_read_when_asked() -> None:
    exchange = ExchangeProgress(
        contributions=40,
        merged=36,
        missed=3,
        adopted=41,
        skipped=2,
        closed=12,
        refused=1,
        versions=(7, 6),
        staleness_steps=5,
        sent_bytes=4096,
        received_bytes=8192,
        requests=300,
        blocked_seconds=0.25,
    )
    found = samples(made(replace(PROGRESS, exchange=exchange)))
    assert {key: value for key, value in found.items() if key[0].startswith("gradientmail_exchange")} == {
        ("gradientmail_exchange_contributions_total", ()): 40.0,
        ("gradientmail_exchange_merged_total", ()): 36.0,
        ("gradientmail_exchange_missed_total", ()): 3.0,
        ("gradientmail_exchange_versions_adopted_total", ()): 41.0,
        ("gradientmail_exchange_versions_skipped_total", ()): 2.0,
        ("gradientmail_exchange_rounds_closed_total", ()): 12.0,
        ("gradientmail_exchange_refused_total", ()): 1.0,
        ("gradientmail_exchange_sent_bytes_total", ()): 4096.0,
        ("gradientmail_exchange_received_bytes_total", ()): 8192.0,
        ("gradientmail_exchange_requests_total", ()): 300.0,
        ("gradientmail_exchange_blocked_seconds_total", ()): 0.25,
        ("gradientmail_exchange_version", (("fragment", "0"),)): 7.0,
        ("gradientmail_exchange_version", (("fragment", "1"),)): 6.0,
        ("gradientmail_exchange_staleness_steps", ()): 5.0,
    }


def test_a_node_that_exchanges_nothing_has_no_samples_of_it() -> None:
    assert not [name for name, _ in samples(made()) if name.startswith("gradientmail_exchange")]


def test_what_is_not_known_yet_is_left_out() -> None:
    names = {name for name, _ in samples(made(NodeProgress("l", "a-0")))}
    assert "gradientmail_step" not in names
    assert "gradientmail_loss" not in names
    assert "gradientmail_batches_total" in names


def test_requests_are_counted_by_operation_and_outcome() -> None:
    metrics = made()
    for outcome in ("ok", "exists", "ok"):
        metrics.request(Request("put_if_absent", outcome, 0.03, 1))
    found = samples(metrics)
    requests = "gradientmail_mailbox_requests_total"
    assert found[requests, (("operation", "put_if_absent"), ("outcome", "ok"))] == 2.0
    assert found[requests, (("operation", "put_if_absent"), ("outcome", "exists"))] == 1.0
    buckets = "gradientmail_mailbox_request_seconds_bucket"
    assert found[buckets, (("le", "0.025"), ("operation", "put_if_absent"))] == 0.0
    assert found[buckets, (("le", "0.05"), ("operation", "put_if_absent"))] == 3.0


def test_claims_and_loads_are_timed() -> None:
    metrics = made()
    metrics.claimed("000000-0.json", 0.2)
    metrics.lost("000000-1.json")
    metrics.loaded("000000-0.json", 20, 3.0)
    metrics.consumed("000000-0.json")
    found = samples(metrics)
    assert found["gradientmail_claim_seconds_count", ()] == 1.0
    assert found["gradientmail_claim_seconds_sum", ()] == 0.2
    assert found["gradientmail_load_seconds_sum", ()] == 3.0


def test_requests_that_have_not_been_made_are_counted_as_none() -> None:
    found = {key: value for key, value in samples(made()).items() if key[0] == "gradientmail_mailbox_requests_total"}
    assert len(found) == 14
    assert set(found.values()) == {0.0}
    assert ("gradientmail_mailbox_requests_total", (("operation", "get"), ("outcome", "unavailable"))) in found


def fully_exercised(fragments: int) -> TrainerMetrics:
    """Metrics with every operation in every outcome, and an exchange of so many fragments."""
    exchange = ExchangeProgress(versions=tuple(range(100, 100 + fragments)))
    metrics = made(replace(PROGRESS, held_out_loss=2.6, exchange=exchange))
    for operation in get_args(Operation):
        for outcome in OUTCOMES[operation]:
            metrics.request(Request(operation, outcome, 0.03, 1))
    metrics.claimed("000000-0.json", 0.2)
    metrics.loaded("000000-0.json", 20, 3.0)
    return metrics


def test_series_of_a_node_are_bounded() -> None:
    assert len(samples(fully_exercised(8))) == 131
    assert len(samples(fully_exercised(9999))) == 140 == sum(metric.most_series for metric in METRICS)


def test_no_metric_has_more_series_than_declared() -> None:
    found = samples(fully_exercised(9999))
    for metric in METRICS:
        parts = [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        names = parts if metric.kind == "histogram" else [metric.exported]
        assert len([name for name, _ in found if name in names]) == metric.most_series, metric.name


def test_outcomes_are_those_of_a_mailbox() -> None:
    assert set(OUTCOMES) == set(get_args(Operation))
    assert {outcome for outcomes in OUTCOMES.values() for outcome in outcomes} == set(get_args(Outcome))


def test_of_many_fragments_the_oldest_version_is_shown() -> None:
    exchange = ExchangeProgress(versions=(9,) * 16 + (8, 3, 7))
    found = samples(made(replace(PROGRESS, exchange=exchange)))
    shown = {dict(rest)["fragment"]: value for (name, rest), value in found.items() if name == VERSION.name}
    assert shown == {str(fragment): 9.0 for fragment in range(16)} | {"others": 3.0}


def test_every_declared_metric_is_exported_with_its_help_and_no_other() -> None:
    text = generate_latest(fully_exercised(2).registry).decode()
    helps = dict(line.removeprefix("# HELP ").split(" ", 1) for line in text.splitlines() if line.startswith("# HELP"))
    assert helps == {metric.exported: metric.help for metric in METRICS}


def test_the_page_is_as_prometheus_wants_it(promtool: Promtool) -> None:
    assert promtool.check_metrics(generate_latest(fully_exercised(2).registry).decode()) == ""


def test_buckets_rise() -> None:
    for metric in METRICS:
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) is (metric.kind == "histogram")
