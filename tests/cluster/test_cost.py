"""What runs cost the API server: requests of one run, and no write where nothing changes."""

from __future__ import annotations

from tests.cluster.harness.api import RUNS
from tests.cluster.harness.controller import Controller, writes
from tests.cluster.harness.manifests import ending, holding, queue_pool, run_manifest
from tests.cluster.harness.metrics import difference, samples
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.site import Site
from tests.cluster.harness.waiting import stays

IDLE_SECONDS = 30.0
ONE = {"steps": 1, "batch": 1, "lanes": 1, "unitSteps": 1}
MOST_REQUESTS = 60
"""From apply to Succeeded with four nodes and four pools: ConfigMap, four Jobs, and a status for what changes."""


def test_a_run_of_four_nodes_costs_a_bounded_number_of_requests(namespace: Namespace, controller: Controller) -> None:
    before = controller.requests()
    run = namespace.apply(run_manifest("frugal", [queue_pool(name, seconds=0.2) for name in "abcd"]))
    run.wait_phase("Succeeded", 60)
    spent = difference(controller.requests(), before)
    assert spent["POST jobs"] == 4
    assert spent["POST configmaps"] == 1
    assert spent["PATCH gradientruns"] <= 30
    assert sum(spent.values()) <= MOST_REQUESTS, spent
    listed = {"GET gradientruns", "GET jobs", "GET pods"}
    assert all(spent.get(each, 0) <= 1 for each in listed), "the turn of a watch to begin anew may have come, once"
    made = {"POST jobs", "POST configmaps", "PATCH gradientruns", "POST events", "GET events"}
    assert set(spent) <= made | listed, spent


def test_nothing_is_written_while_nothing_changes(namespace: Namespace, controller: Controller, cluster: Site) -> None:
    """Runs in every state that lasts: running, finished, suspended, and stalled in ways that the kubelet repeats."""
    refused = _refused(cluster)
    image = {"image": "registry.invalid/trainer:none", "imagePullPolicy": "IfNotPresent"}
    running = namespace.apply(run_manifest("running", [holding("a", 2)]))
    finished = namespace.apply(run_manifest("finished", [ending(units=1)], data=ONE))
    suspended = namespace.apply(run_manifest("suspended", [holding()], suspend=True))
    unpulled = namespace.apply(run_manifest("unpulled", [holding()], trainer=image))
    crowded = namespace.apply(run_manifest("crowded", [holding(gpus=64)]))
    running.wait(lambda status: status["nodesRunning"] == 2, "two running nodes", 60)
    finished.wait_phase("Succeeded", 60)
    suspended.wait_phase("Suspended", 60)
    unpulled.wait_condition("Stalled", 60, "ImagePullBackOff")
    crowded.wait_condition("Stalled", 60, "Unschedulable")
    # Counts of nodes that have just started are the last that is written, and an event follows what it tells.
    running.wait(lambda status: all(node.get("step") == 0 for node in status["nodes"]), "the first counts", 20)
    ends = (running, "Running"), (finished, "Succeeded"), (suspended, "Suspended")
    for run, reason in (*ends, (unpulled, "ImagePullBackOff"), (crowded, "Unschedulable")):
        run.wait_event(reason)
    before, versions = controller.requests(), _versions(namespace)
    stays(
        lambda: _versions(namespace) == versions,
        "the same versions of all runs",
        IDLE_SECONDS,
        lambda: _versions(namespace),
    )
    spent = difference(controller.requests(), before)
    assert writes(spent) == 0, spent
    assert sum(spent.values()) <= 10, spent
    assert _refused(cluster) == refused


def _versions(namespace: Namespace) -> dict[str, str]:
    runs = namespace.api.list(RUNS, namespace.name)
    return {run["metadata"]["name"]: run["metadata"]["resourceVersion"] for run in runs}


def _refused(cluster: Site) -> int:
    """Return how many requests for GradientRuns the API server has ever answered with 403."""
    page = cluster.api.text("GET", "/metrics")
    found = samples(page, "apiserver_request_total")
    return sum(
        count for labels, count in found.items() if ("resource", "gradientruns") in labels and ("code", "403") in labels
    )
