"""The metrics of several nodes as one, scraped from real servers."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gradientmail.local.scraping import NodesMetrics, last_families, with_last_word
from gradientmail.mailbox import Request
from gradientmail.metrics import Labels, TrainerMetrics
from gradientmail.progress import NodeProgress
from gradientmail.training.serving import serving
from tests.waiting import until

A, B = (Labels("default", "demo", node) for node in ("a-0", "b-0"))


def word(node: str, claimed: int, consumed: int) -> NodeProgress:
    return NodeProgress(f"{node}-x", node, claimed=claimed, consumed=consumed, step=7)


def exported(metrics: NodesMetrics) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry).decode()


def value(text: str, name: str, node: str, **labels: str) -> float | None:
    """Return the value of a series in an exposition; None if it is not there."""
    wanted = {"namespace": "default", "run": "demo", "node": node, **labels}
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return next((sample.value for sample in samples if sample.name == name and sample.labels == wanted), None)


def consumed(text: str, node: str) -> float | None:
    return value(text, "gradientmail_units_consumed_total", node)


def test_series_of_all_nodes_stand_on_one_page_and_stay_when_a_node_ends() -> None:
    now = {"a-0": word("a-0", 3, 2), "b-0": word("b-0", 1, 0)}
    ended: dict[str, NodeProgress] = {}
    metrics = NodesMetrics({"a-0": A, "b-0": B}, 24, lambda: ended)
    first = TrainerMetrics(A, units=24, progress=lambda: now["a-0"])
    second = TrainerMetrics(B, units=24, progress=lambda: now["b-0"])
    first.request(Request("get", "ok", 0.01, 1))
    with metrics.scraping(), serving(0, second.registry, {}, "127.0.0.1") as other:
        with serving(0, first.registry, {}, "127.0.0.1") as port:
            metrics.listens("a-0", port)
            metrics.listens("b-0", other)
            until(lambda: (consumed(exported(metrics), "a-0"), consumed(exported(metrics), "b-0")) == (2, 0))
        ended["a-0"] = word("a-0", 5, 5)
        now["b-0"] = word("b-0", 2, 1)
        until(lambda: consumed(exported(metrics), "b-0") == 1)
    text = exported(metrics)
    assert consumed(text, "a-0") == 5
    assert value(text, "gradientmail_units", "a-0") == 24
    assert value(text, "gradientmail_mailbox_requests_total", "a-0", operation="get", outcome="ok") == 1
    assert text.count("# TYPE gradientmail_units_consumed_total counter") == 1


def test_a_node_that_never_answered_has_the_series_of_its_last_word() -> None:
    ended: Mapping[str, NodeProgress] = {"a-0": word("a-0", 5, 4)}
    text = exported(NodesMetrics({"a-0": A, "b-0": B}, 24, lambda: ended))
    assert value(text, "gradientmail_units_claimed_total", "a-0") == 5
    assert value(text, "gradientmail_step", "a-0") == 7
    assert consumed(text, "b-0") is None


def test_a_counter_never_falls_and_a_gauge_may() -> None:
    scraped = last_families(A, 24, NodeProgress("a-0-x", "a-0", consumed=5, buffered=8))
    last = last_families(A, 24, NodeProgress("a-0-x", "a-0", consumed=4, buffered=0))
    merged = {family.name: family.samples[0].value for family in with_last_word(scraped, last)}
    assert merged["gradientmail_units_consumed"] == 5
    assert merged["gradientmail_buffered_batches"] == 0
