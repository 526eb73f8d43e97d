"""What Prometheus tells of a run on a cluster, scraped as docs/observability.md says: true to the unit."""

from __future__ import annotations

import json
import math
import re
import select
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.harness.api import PODS, Api, Object, Unreachable
from tests.cluster.harness.controller import NAMESPACE as SYSTEM
from tests.cluster.harness.controller import Controller
from tests.cluster.harness.manifests import pool_with, run_manifest, training_pool
from tests.cluster.harness.metrics import samples
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run
from tests.cluster.harness.site import Site
from tests.cluster.harness.tool import ROOT
from tests.cluster.harness.waiting import until
from tests.dashboards import FLEET, RUN, Query, queries, query
from tests.prometheus import Prometheus, documented_job, prometheus_server
from tests.promtool import Promtool

START_SECONDS = 30.0
HELD_BACK, ALL_STEPS = 8, 88
DATA = {"steps": ALL_STEPS, "batch": 4, "lanes": 2, "unitSteps": 2}
UNITS, UNITS_BEFORE = 88, 8
"""All units of the run, and those below the step from which nodes hold back."""
EXCHANGE = {"syncEvery": 5, "fragments": 1, "patienceSeconds": 1, "flushSeconds": 2, "pollSeconds": 0.2}
TRAINER = {
    "task": "tests.integration.observability.watched_task:task",
    "microBatch": 2,
    "logEvery": 1,
    "evaluateEvery": 10,
    "exchange": EXCHANGE,
}
ENVIRONMENT = {"PACE": "0.1", "LIMIT": str(HELD_BACK), "LIMIT_FILE": "/tmp/limit"}


def test_counts_of_a_run_with_a_killed_node_are_the_same_everywhere(
    namespace: Namespace, controller: Controller, cluster: Site, promtool: Promtool, tmp_path: Path
) -> None:
    """Prometheus, the controller's page, the status and the bucket; and every panel shows something."""
    with _prometheus(cluster, promtool, tmp_path, namespace.name) as prometheus:
        begun = time.time()
        run = _started(namespace)
        survivor, killed = sorted(str(pod["metadata"]["name"]) for pod in run.wait_running(2, 60))
        until(lambda: len(run.receipts()) == UNITS_BEFORE, "the units that are let go", 150, run.receipts)
        _agree(prometheus, controller, run)
        _wait_known(prometheus, run, {survivor, killed})
        namespace.api.delete(PODS, namespace.name, killed, grace_seconds=0)
        (replacement,) = _replacement(run, {survivor, killed})
        until(lambda: replacement in run.claims().values(), "a claim by the new pod", 150, run.claims)
        for pod in (survivor, replacement):
            _let_go(namespace, pod)
        status = run.wait_phase("Succeeded", 150)
        lost = len(set(run.claims()) - run.receipts())
        assert lost >= 1
        assert status["units"] == {"total": UNITS, "claimed": UNITS, "consumed": UNITS - lost, "lost": lost} | {
            "percent": status["units"]["percent"]
        }
        _agree(prometheus, controller, run)
        _check_panels(prometheus, run, killed)
        known = _scraped(prometheus, run, begun)
        assert known == {*run.claims().values()}, "the three pods that claimed, and no other"
        assert _unanswered(prometheus, run, begun) == []


@contextmanager
def _prometheus(cluster: Site, promtool: Promtool, folder: Path, namespace: str) -> Iterator[Prometheus]:
    """Run Prometheus with the documented job. Debian's knows no Kubernetes, so the pods are found for it."""
    found = folder / "pods.json"
    with _api_server(cluster) as address, _discovery(cluster.api, [namespace, SYSTEM], found):
        job = _proxied_job(address, found)
        rules = ROOT / "charts" / "gradientmail" / "files" / "rules.yaml"
        with prometheus_server(promtool.program.with_name("prometheus"), folder, [job], [rules]) as prometheus:
            yield prometheus


@contextmanager
def _api_server(cluster: Site) -> Iterator[str]:
    """Give an address on this machine at which the API server answers with the administrator's rights."""
    words = ["kubectl", "proxy", "--port=0"]
    environment = dict(cluster.kubectl.environment)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], START_SECONDS)[0], "kubectl proxy said nothing for 30 s"
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@contextmanager
def _discovery(api: Api, namespaces: Sequence[str], file: Path) -> Iterator[None]:
    """Keep a file of the namespaces' pods, with the labels that Prometheus' discovery of pods gives them."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(0.5):
            with suppress(Unreachable):
                pods = [pod for namespace in namespaces for pod in api.list(PODS, namespace)]
                _write(file, [_target(pod) for pod in pods if pod["status"].get("podIP")])

    _write(file, [])
    thread = threading.Thread(target=keep, name="discovery")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _write(file: Path, targets: list[Object]) -> None:
    text = json.dumps(targets)
    if not file.exists() or file.read_text() != text:
        new = file.with_suffix(".new")
        new.write_text(text)
        new.rename(file)


def _target(pod: Object) -> Object:
    metadata, status = pod["metadata"], pod["status"]
    annotations = {
        f"__meta_kubernetes_pod_annotation_{re.sub('[^a-zA-Z0-9]', '_', name)}": value
        for name, value in metadata.get("annotations", {}).items()
        if name.startswith("prometheus.io/")
    }
    labels = {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        "__meta_kubernetes_pod_ip": status["podIP"],
        "__meta_kubernetes_pod_phase": status["phase"],
    }
    return {"targets": [status["podIP"]], "labels": {**labels, **annotations}}


def _proxied_job(address: str, pods: Path) -> Object:
    """Return the job of the documentation, each second, with every request by way of the API server.

    So it works from a machine that reaches no pod. Which pods, ports, paths and labels there are is the document's.
    """
    job = documented_job()
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    port = "__meta_kubernetes_pod_annotation_prometheus_io_port"
    proxied = {
        "source_labels": ["__meta_kubernetes_namespace", "__meta_kubernetes_pod_name", port, "__metrics_path__"],
        "regex": "(.+);(.+);(.+);(.+)",
        "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy$4",
        "target_label": "__metrics_path__",
    }
    job["relabel_configs"] += [
        {"source_labels": ["__address__"], "target_label": "instance"},
        proxied,
        {"replacement": address, "target_label": "__address__"},
    ]
    return {**job, "file_sd_configs": [{"files": [str(pods)]}], "scrape_interval": "1s", "scrape_timeout": "1s"}


def _started(namespace: Namespace) -> Run:
    given = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    container = {"spec": {"containers": [{"name": "trainer", "env": given}], "terminationGracePeriodSeconds": 1}}
    pool = pool_with(namespace.training(training_pool("a", 2)), container)
    return namespace.apply(run_manifest("seen", [pool], data=DATA, trainer=TRAINER))


def _let_go(namespace: Namespace, pod: str) -> None:
    words = ("--namespace", namespace.name, "exec", pod, "--container", "trainer", "--")
    namespace.kubectl(*words, "sh", "-c", f"echo {ALL_STEPS} > /tmp/limit.new && mv /tmp/limit.new /tmp/limit")


def _replacement(run: Run, known: set[str]) -> set[str]:
    return until(
        lambda: {str(pod["metadata"]["name"]) for pod in run.running_pods()} - known or None, "a new pod", 60, run.pods
    )


def _agree(prometheus: Prometheus, controller: Controller, run: Run) -> None:
    """Wait until the four sums of consumed units are equal; no unit is trained meanwhile."""
    receipts = len(run.receipts())

    def sums() -> dict[str, float | None]:
        page = samples(controller.page(), "gradientrun_units")
        mine = {("namespace", run.namespace), ("run", run.name), ("state", "consumed")}
        return {
            "Prometheus": prometheus.value(f"sum({_asked(query(RUN, 'Units consumed by node'), run)})"),
            "controller": next((value for labels, value in page.items() if set(labels) == mine), None),
            "status": run.status["units"]["consumed"],
            "receipts": receipts,
        }

    until(lambda: set(sums().values()) == {receipts}, "four equal sums", 60, sums)


def _wait_known(prometheus: Prometheus, run: Run, pods: set[str]) -> None:
    """Wait until each pod has claimed, the status knows of all claims, and Prometheus of all pods."""
    begun = time.time()
    until(lambda: set(run.claims().values()) == pods, "claims by all pods", 60, run.claims)
    run.wait(lambda status: status["units"]["claimed"] == len(run.claims()), "all claims in the status", 30)
    until(lambda: _scraped(prometheus, run, begun) >= pods, "a scrape of each pod", 30)


def _scraped(prometheus: Prometheus, run: Run, since: float) -> set[str]:
    """Return the pods of a run that Prometheus has read."""
    asked = f'count by (pod) (gradientmail_units{{namespace="{run.namespace}"}})'
    return {dict(labels)["pod"] for labels in prometheus.over_time(asked, start=since, end=time.time(), step=1)}


def _asked(query: Query, run: Run) -> str:
    return query.with_values(namespace=run.namespace, run=run.name, shown="1h", window="6s")


def _check_panels(prometheus: Prometheus, run: Run, killed: str) -> None:
    """Wait until the panels show the end, after which nothing changes."""
    claims, receipts = run.claims(), run.receipts()

    def by_node(panel: str) -> dict[str, float]:
        return prometheus.by("node", _asked(query(RUN, panel), run))

    trained, owned = (Counter(_node(learner) for learner in owners) for owners in (
        [claims[unit] for unit in receipts], claims.values()
    ))  # fmt: skip
    expected = {
        "Units consumed by node": trained,
        "Units claimed by node": owned,
        "Restarts by node": {node: float(node == _node(killed)) for node in trained},
        "Lost units": len(claims) - len(receipts),
        "Progress": len(receipts) / UNITS,
        "Phase": {"Succeeded": 1},
    }

    def shown() -> Mapping[str, object]:
        single = {panel: prometheus.value(_asked(query(RUN, panel), run)) for panel in ("Lost units", "Progress")}
        phase = prometheus.by("phase", _asked(query(RUN, "Phase"), run))
        return {panel: by_node(panel) for panel in expected if panel.endswith("by node")} | single | {"Phase": phase}

    until(lambda: shown() == expected, f"panels that show {expected}", 60, shown)


def _node(pod: str) -> str:
    """Return the node of a pod: pods are named {run}-{pool}-{hash}-{index}-{suffix}."""
    return f"a-{pod.split('-')[-2]}"


def _unanswered(prometheus: Prometheus, run: Run, begun: float) -> list[str]:
    """Return the queries of panels that had no value at any time of the run."""
    end = time.time()
    unanswered = []
    for each in (*queries(RUN), *queries(FLEET)):
        found = prometheus.over_time(_asked(each, run), start=begun, end=end, step=1)
        if not any(math.isfinite(value) for values in found.values() for _, value in values):
            unanswered.append(str(each))
    return unanswered
