"""Metrics of runs and of the controller, as a scrape sees them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gradientmail.run_status import NODES_LISTED, RunPhase
from gradientrun.metrics import ERRORS, METRICS, METRICS_OF_RUNS, PHASES, Metrics
from gradientrun.observed import Counts
from gradientrun.runs import Manifest
from gradientrun.status import derive_status
from tests.promtool import Promtool
from tests.unit.controller.manifests import START, a_run, at, observed, pod_manifest, run_manifest, running

pytestmark = pytest.mark.timeout(120, func_only=True)  # installing promtool may take longer


def shown(*runs: Manifest) -> Metrics:
    metrics = Metrics()
    metrics.show(lambda: runs)
    metrics.show_queue(lambda: 3, lambda: 0.25)
    return metrics


def page(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def of_run(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Samples of the run by the values of their labels, namespace and run aside."""
    found = {}
    for family in text_string_to_metric_families(page(metrics)):
        for sample in family.samples:
            if sample.name == name:
                labels = dict(sample.labels)
                assert (labels.pop("namespace"), labels.pop("run")) == ("team", "first")
                found[tuple(labels.values())] = sample.value
    return found


def learner(node: str, pod: str, claimed: int, consumed: int) -> dict[str, Any]:
    return {"node": node, "pod": pod, "claimed": claimed, "consumed": consumed}


def test_a_run_that_goes_on() -> None:
    run = a_run()
    seen = observed(run, pod_manifest(**running()), counts={"first-fast-0-aaaaa": Counts(3, 2)})
    metrics = shown(run_manifest(status=derive_status(run, seen, at(10))))
    assert list(of_run(metrics, "gradientrun_info").values()) == [1]
    assert 'image="trainer:1"' in page(metrics)
    phases = {"Pending": 0, "Running": 1, "Suspended": 0, "Succeeded": 0, "Failed": 0}
    assert of_run(metrics, "gradientrun_phase") == {(name,): value for name, value in phases.items()}
    assert of_run(metrics, "gradientrun_units") == {("total",): 8, ("claimed",): 3, ("consumed",): 2, ("lost",): 0}
    assert of_run(metrics, "gradientrun_lost_units_limit") == {(): 4}
    assert of_run(metrics, "gradientrun_nodes") == {("wanted",): 3, ("running",): 1}
    assert of_run(metrics, "gradientrun_stalled") == {(): 0}
    assert of_run(metrics, "gradientrun_start_time_seconds") == {(): at(10).timestamp()}
    assert of_run(metrics, "gradientrun_completion_time_seconds") == {}
    assert of_run(metrics, "gradientrun_estimated_remaining_seconds") == {(): 15}
    assert of_run(metrics, "gradientrun_node_units") == {
        ("fast-0", "claimed"): 3, ("fast-0", "consumed"): 2,
        ("fast-1", "claimed"): 0, ("fast-1", "consumed"): 0,
        ("slow-0", "claimed"): 0, ("slow-0", "consumed"): 0,
    }  # fmt: skip
    assert of_run(metrics, "gradientrun_node_restarts") == {("fast-0",): 0, ("fast-1",): 0, ("slow-0",): 0}


def test_a_run_that_the_controller_has_not_looked_at() -> None:
    metrics = shown(run_manifest())
    assert of_run(metrics, "gradientrun_units") == dict.fromkeys(
        [("total",), ("claimed",), ("consumed",), ("lost",)], 0
    )
    assert of_run(metrics, "gradientrun_lost_units_limit") == {}
    assert of_run(metrics, "gradientrun_phase") == {(name,): 0 for name in PHASES}


def test_final_figures_stay_after_the_pods_and_a_restart_and_go_with_the_run() -> None:
    status = {
        "phase": "Succeeded",
        "attempt": 1,
        "completionTime": "2026-01-01T12:01:00Z",
        "units": {"total": 8, "claimed": 8, "consumed": 7, "lost": 1},
        "nodes": [{"name": "fast-0", "phase": "Succeeded", "claimed": 6, "consumed": 5, "restarts": 2}],
        "learners": [learner("fast-0", "", 2, 1), learner("fast-0", "p", 4, 4), learner("slow-0", "", 2, 2)],
    }
    runs = [run_manifest(status=status)]
    for _ in ("before", "after a restart of the controller"):
        metrics = Metrics()
        metrics.show(lambda: runs)
        units = of_run(metrics, "gradientrun_units")
        nodes = of_run(metrics, "gradientrun_node_units")
        assert units == {("total",): 8, ("claimed",): 8, ("consumed",): 7, ("lost",): 1}
        assert nodes == {
            ("fast-0", "claimed"): 6, ("fast-0", "consumed"): 5,
            ("others", "claimed"): 2, ("others", "consumed"): 2,
        }  # fmt: skip
        assert sum(value for (_, state), value in nodes.items() if state == "consumed") == units["consumed",]
        assert of_run(metrics, "gradientrun_completion_time_seconds") == {(): START.timestamp() + 60}
        assert of_run(metrics, "gradientrun_node_restarts") == {("fast-0",): 2}
    runs.clear()
    assert "team" not in page(metrics)


def test_series_of_a_run_are_bounded_however_many_nodes_it_has() -> None:
    names = [f"fast-{index}" for index in range(1000)]
    status = {
        "phase": "Succeeded",
        "attempt": 1,
        "startTime": "2026-01-01T12:00:00Z",
        "completionTime": "2026-01-01T12:01:00Z",
        "estimatedRemainingSeconds": 5,
        "units": {"total": 4000, "claimed": 4000, "consumed": 3000, "lost": 1000},
        "nodes": [{"name": name, "phase": "Succeeded"} for name in names[:NODES_LISTED]],
        "learners": [learner(name, "", 4, 3) for name in names],
    }
    metrics = shown(run_manifest(status=status))
    counts = {metric.name: len(of_run(metrics, metric.name)) for metric in METRICS_OF_RUNS}
    assert counts == {metric.name: metric.most_series for metric in METRICS_OF_RUNS}
    assert sum(counts.values()) == 169
    nodes = of_run(metrics, "gradientrun_node_units")
    assert nodes["others", "consumed"] == 950 * 3
    assert sum(value for (_, state), value in nodes.items() if state == "consumed") == 3000


def test_every_declared_metric_is_exported_with_its_help_and_no_other() -> None:
    metrics = shown(run_manifest(status={"phase": "Running"}))
    metrics.count_request("PATCH", "gradientruns", "200")
    helps = dict(
        line.removeprefix("# HELP ").split(" ", 1)
        for line in page(metrics).splitlines()
        if line.startswith("# HELP gradient")
    )
    assert helps == {metric.exported: metric.help for metric in METRICS}


def test_the_page_is_as_prometheus_wants_it(promtool: Promtool) -> None:
    run = a_run()
    metrics = shown(run_manifest(status=derive_status(run, observed(run, pod_manifest(**running())), at(10))))
    metrics.count_request("PATCH", "gradientruns", "200")
    assert promtool.check_metrics(page(metrics)) == ""


def test_what_the_controller_counts() -> None:
    metrics = shown()
    metrics.count_request("PATCH", "gradientruns", "200")
    lines = page(metrics).splitlines()
    assert 'gradientrun_kubernetes_requests_total{code="200",resource="gradientruns",verb="PATCH"} 1.0' in lines
    assert "gradientrun_queue_runs 3.0" in lines
    assert "gradientrun_queue_wait_seconds 0.25" in lines
    assert [line for line in lines if line.startswith("gradientrun_reconcile_errors_total{")] == [
        f'gradientrun_reconcile_errors_total{{kind="{kind}"}} 0.0' for kind in ERRORS
    ]
    assert "_created" not in page(metrics)


def test_phases_are_those_of_a_status() -> None:
    assert get_args(RunPhase) == PHASES
