"""Metrics of runs, as a scrape sees them."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest

from gradientrun.metrics import Metrics
from gradientrun.observed import Counts
from gradientrun.status import derive_status
from tests.unit.controller.manifests import a_run, at, observed, pod_manifest, run_manifest, running


def test_a_runs_metrics_come_and_go_with_it() -> None:
    run = a_run()
    seen = observed(run, pod_manifest(**running()), counts={"first-fast-0-aaaaa": Counts(3, 2)})
    runs = [run_manifest(status=derive_status(run, seen, at(10)))]
    metrics = Metrics()
    metrics.show(lambda: runs)
    key = {"namespace": "team", "run": "first"}

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, key | labels)

    assert value("gradientrun_phase", phase="Running") == 1
    assert value("gradientrun_phase", phase="Failed") == 0
    assert value("gradientrun_units", state="total") == 8
    assert value("gradientrun_units", state="claimed") == 3
    assert value("gradientrun_units", state="lost") == 0
    assert value("gradientrun_node_units", node="fast-0", state="consumed") == 2
    assert value("gradientrun_stalled") == 0
    assert 'image="trainer:1"' in generate_latest(metrics.registry).decode()
    runs.clear()
    assert "team" not in generate_latest(metrics.registry).decode()


def test_answers_of_the_api_server_are_counted() -> None:
    metrics = Metrics()
    metrics.count_request("PATCH", "gradientruns", "200")
    page = generate_latest(metrics.registry).decode()
    assert 'gradientrun_kubernetes_requests_total{code="200",resource="gradientruns",verb="PATCH"} 1.0' in page
