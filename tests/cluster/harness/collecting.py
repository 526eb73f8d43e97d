"""What a person needs after a failure: objects, events and logs of the test's namespaces, in a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.cluster.harness.api import PODS, Api, Object, Unreachable
from tests.cluster.harness.tool import CommandFailed, Kubectl

KINDS = "gradientruns,jobs,pods,configmaps,events,services,resourcequotas,persistentvolumeclaims"
LOG_LINES = "400"


def collect(folder: Path, namespaces: list[str], api: Api, kubectl: Kubectl) -> Path:
    """Write all there is about some namespaces, and about the nodes, into a folder. Never raises for want of it."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "nodes.txt", kubectl, "describe", "nodes")
    for namespace in namespaces:
        scope = ("--namespace", namespace)
        _write(folder / f"{namespace}.yaml", kubectl, *scope, "get", KINDS, "--output", "yaml")
        _write(folder / f"{namespace}-events.txt", kubectl, *scope, "events")
        for pod in _pods(api, namespace):
            _collect_logs(folder, pod, kubectl)
    return folder


def _pods(api: Api, namespace: str) -> list[Object]:
    with suppress(Unreachable):
        return api.list(PODS, namespace)
    return []


def _collect_logs(folder: Path, pod: Object, kubectl: Kubectl) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    words = ("--namespace", namespace, "logs", name, "--all-containers", "--tail", LOG_LINES)
    _write(folder / f"{namespace}-{name}.log", kubectl, *words)
    restarted = any(status["restartCount"] for status in pod["status"].get("containerStatuses") or [])
    if restarted:
        _write(folder / f"{namespace}-{name}-previous.log", kubectl, *words, "--previous")


def _write(file: Path, kubectl: Kubectl, *words: str) -> None:
    try:
        text = kubectl(*words)
    except CommandFailed as error:
        text = str(error)
    file.write_text(text)
