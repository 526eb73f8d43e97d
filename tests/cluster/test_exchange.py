"""Nodes of a cluster train one model through the bucket, though one of them is killed; a user fetches that model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gradientmail.exchange.assembling import metadata_of
from gradientmail.training.loading import build_task
from gradientmail.training.task import Setting
from tests.cluster.harness.api import PODS, Object
from tests.cluster.harness.manifests import pool_with, run_manifest, training_pool
from tests.cluster.harness.metrics import samples
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run
from tests.cluster.harness.waiting import until
from tests.integration.stored_runs import called
from tests.servers import CREDENTIALS

PACES = {"a": 0.1, "b": 0.2, "c": 0.2, "d": 0.4}
"""Seconds that a batch takes: speeds of 4:2:2:1."""
RELEASED = "/tmp/released"
DATA = {"steps": 900, "batch": 16, "lanes": 4, "unitSteps": 20}
"""3,600 batches, of which these nodes train 22 in a second."""
EXCHANGE = {"syncEvery": 10, "fragments": 2, "patienceSeconds": 5, "flushSeconds": 10, "pollSeconds": 0.2}
TRAINER = {
    "task": "tests.cluster.nodes.paced_task:task",
    "microBatch": 4,
    "logEvery": 100,
    "exchange": EXCHANGE,
}
METRICS_PORT = 9090


def test_four_unequal_nodes_train_one_model_though_the_fastest_is_killed(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the end, where a user fetches the model that all of them, the killed one too, have made."""
    run = _started(namespace)
    first = {_node(pod): _name(pod) for pod in run.wait_running(4, 60)}
    assert sorted(first) == ["a-0", "b-0", "c-0", "d-0"]
    _wait_merged(run, first)

    killed = first["a-0"]
    earlier = sum(_newest(run, [killed]))
    namespace.api.delete(PODS, namespace.name, killed, grace_seconds=0)
    before = _newest(run, [pod for pod in first.values() if pod != killed])
    replacement = _replacement(run, set(first.values()))
    pods = {**first, "a-0": replacement}
    for node in ("b-0", "c-0", "d-0"):
        _wait_versions(run, pods[node], [version + 2 for version in before])
    _wait_merged(run, pods)
    for pod in pods.values():
        words = ("--namespace", namespace.name, "exec", pod, "--container", "trainer", "--")
        namespace.kubectl(*words, "touch", RELEASED)
    run.wait_phase("Succeeded", 90)

    last = _last_words(run)
    assert set(last) == set(pods.values())
    joined = last[replacement]
    first_held = sum(joined["versions"]) - joined["adopted"] - joined["skipped"]
    assert first_held >= earlier > 0, "it began with what the run had learned before"
    assert run.store.names(f"{run.prefix}/model/") == ["final.safetensors"]
    final = max(last.values(), key=lambda told: int(told["final_samples"]))
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    _check_model(run, final, {*pods.values(), killed}, tmp_path / "model.safetensors")
    _check_report(run, final, tmp_path)


def _started(namespace: Namespace) -> Run:
    pools = [_paced(namespace.training(training_pool(name)), pace) for name, pace in PACES.items()]
    return namespace.apply(run_manifest("exchanged", pools, data=DATA, trainer=TRAINER))


def _paced(pool: Mapping[str, Any], pace: float) -> Object:
    given = [{"name": "PACE", "value": str(pace)}, {"name": "RELEASED", "value": RELEASED}]
    return pool_with(pool, {"spec": {"containers": [{"name": "trainer", "env": given}]}})


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _node(pod: Object) -> str:
    labels = pod["metadata"]["labels"]
    return f"{labels['gradientmail.io/pool']}-{labels['batch.kubernetes.io/job-completion-index']}"


def _page(run: Run, pod: str) -> str:
    return run.api.text("GET", PODS.path(run.namespace, f"{pod}:{METRICS_PORT}", "proxy/metrics"))


def _versions(run: Run, pod: str) -> list[int]:
    """Return the version of each fragment that a pod holds."""
    found = samples(_page(run, pod), "gradientmail_exchange_version")
    return [found[labels] for labels in sorted(found)]


def _newest(run: Run, pods: Sequence[str]) -> list[int]:
    """Return the newest version of each fragment that a pod holds."""
    held = [until(partial(_versions, run, pod), f"the page of {pod}", 30) for pod in pods]
    return [max(versions) for versions in zip(*held, strict=True)]


def _merged(run: Run, pod: str) -> bool:
    """Whether a pod has adopted a version, and one that holds what it had contributed."""
    page = _page(run, pod)
    counts = (f"gradientmail_exchange_{what}_total" for what in ("versions_adopted", "merged"))
    return all(samples(page, name).total() > 0 for name in counts)


def _wait_merged(run: Run, pods: Mapping[str, str]) -> None:
    for pod in pods.values():
        until(partial(_merged, run, pod), f"{pod} to adopt its own contribution", 60)


def _wait_versions(run: Run, pod: str, wanted: list[int]) -> None:
    def reached() -> bool:
        return all(held >= least for held, least in zip(_versions(run, pod), wanted, strict=True))

    until(reached, f"{pod} to hold versions {wanted}", 60, lambda: _versions(run, pod))


def _replacement(run: Run, known: set[str]) -> str:
    def found() -> str | None:
        return next((name for pod in run.running_pods("a") if (name := _name(pod)) not in known), None)

    return until(found, "a new pod in place of the killed one", 60, run.pods)


def _last_words(run: Run) -> dict[str, Object]:
    """Return what each pod's termination message says of the exchange."""
    return {pod: told["exchange"] for pod, told in run.last_words().items()}


def _check_model(run: Run, final: Object, contributors: set[str], file: Path) -> None:
    """Fetch the model as a user does: all pods have contributed, and the task's model has the loss that was told."""
    output = _called("export", run, str(file))
    assert "the final model" in output
    told = metadata_of(file.read_bytes())
    assert set(json.loads(told["contributors"])) == contributors
    assert int(told["samples"]) == final["final_samples"]
    setting = Setting(
        device=torch.device("cpu"), seed=1, steps=DATA["steps"], batch=DATA["batch"], micro_batch=4, autocast=None
    )
    task = build_task("tests.integration.noisy_task:task", {}, setting)
    assert task.evaluate is not None
    untrained = task.evaluate(task.model)
    task.model.load_state_dict(load_file(file))
    loss = task.evaluate(task.model)
    assert loss == pytest.approx(final["final_held_out_loss"], abs=1e-4)
    assert loss < untrained - 0.2


def _check_report(run: Run, final: Object, folder: Path) -> None:
    """The report names the model and whose work is in it, and sums up the traffic of all pods."""
    _called("report", run, "--no-picture", "--out", str(folder))
    report = json.loads((folder / "report.json").read_text())
    assert report["final_model"]["key"] == "model/final.safetensors"
    assert report["final_model"]["contributors"] == ["a-0", "b-0", "c-0", "d-0"]
    assert report["final_model"]["written"]["samples"] == final["final_samples"]
    assert report["final_model"]["written"]["held_out_loss"] == final["final_held_out_loss"]
    assert report["exchange"]["highest_version"] >= max(final["versions"])
    assert report["exchange"]["sent_bytes"] >= sum(told["sent_bytes"] for told in _last_words(run).values())


def _called(command: str, run: Run, *words: str) -> str:
    """Call the command line on the run's mailbox; return what it says."""
    code, output = called(command, run.prefix, *words, "--endpoint-url", run.store.client.meta.endpoint_url)
    assert code == 0, output
    return output
