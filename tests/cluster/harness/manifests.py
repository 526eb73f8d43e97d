"""Runs and pools for tests. Every function returns a new manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness.api import Object
from tests.cluster.harness.tool import ROOT

NODES_FOLDER = Path(__file__).parents[1] / "nodes"
TASK_FILES = (
    ROOT / "tests" / "integration" / "noisy_task.py",
    ROOT / "tests" / "integration" / "tiny_task.py",
    ROOT / "tests" / "integration" / "observability" / "watched_task.py",
    NODES_FOLDER / "paced_task.py",
    NODES_FOLDER / "raising_task.py",
)
QUEUE_NODE = (NODES_FOLDER / "queue_node.py").read_text()
SCRIPTED_NODE = (NODES_FOLDER / "scripted_node.py").read_text()
DELETED = {"$patch": "delete"}
LIBRARIES = "libraries"
TASKS = "tasks"

TINY = {"steps": 40, "batch": 8, "lanes": 4, "unitSteps": 1}
"""160 units of one batch each."""


def run_manifest(name: str, pools: Sequence[Mapping[str, Any]], **spec: Any) -> Object:
    """Return a run of 160 tiny units; `spec` replaces fields of the spec."""
    return {
        "apiVersion": "gradientmail.io/v1alpha1",
        "kind": "GradientRun",
        "metadata": {"name": name},
        "spec": {
            "data": dict(TINY),
            "nodes": [dict(pool) for pool in pools],
            "maxLostUnits": "100%",
            **spec,
            "trainer": {"microBatch": 1, "prefetch": 2, **spec.get("trainer", {})},
        },
    }


def queue_pool(name: str = "a", replicas: int = 1, *, seconds: float = 0.05, **pool: Any) -> Object:
    """Return a pool of nodes with a real queue and no model; a batch takes `seconds`."""
    return _scripted(name, replicas, QUEUE_NODE, {"seconds": seconds}, pool)


def scripted_pool(name: str = "a", replicas: int = 1, *, told: Mapping[str, Any], **pool: Any) -> Object:
    """Return a pool of nodes that do as they are told; see nodes/scripted_node.py."""
    return _scripted(name, replicas, SCRIPTED_NODE, told, pool, startupProbe=DELETED, livenessProbe=DELETED)


def holding(name: str = "a", replicas: int = 1, **pool: Any) -> Object:
    """Return a pool of nodes that run for an hour, or until they are stopped, and have no units."""
    return scripted_pool(name, replicas, told={"seconds": 3600}, **pool)


def ending(name: str = "a", replicas: int = 1, *, units: int, seconds: float = 0, **pool: Any) -> Object:
    """Return a pool of nodes that end well after `seconds`, with so many units each."""
    told = {"seconds": seconds, "claimed": units, "consumed": units}
    return scripted_pool(name, replicas, told=told, **pool)


def _scripted(
    name: str, replicas: int, script: str, told: Mapping[str, Any], pool: Mapping[str, Any], **container: Any
) -> Object:
    command = {"name": "trainer", "command": ["python3", "-c", script], "args": [json.dumps(dict(told))], **container}
    return pool_with({"name": name, "replicas": replicas, "gpus": 0, **pool}, {"spec": {"containers": [command]}})


def pool_with(pool: Mapping[str, Any], template: Mapping[str, Any]) -> Object:
    """Return the pool with more in its template; lists of named things are joined."""
    return {**pool, "template": joined(pool.get("template", {}), template)}


def joined(first: Any, second: Any) -> Any:
    """Return two templates as one: mappings merge, lists merge by name or are joined, other values are the second's."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        both = {key: joined(first[key], second[key]) for key in first if key in second}
        return {**first, **second, **both}
    if isinstance(first, list) and isinstance(second, list):
        named = {item["name"]: item for item in first if "name" in item}
        taken = {item["name"] for item in second if "name" in item}
        others = [item for item in first if item.get("name") not in taken]
        return others + [joined(named.get(item.get("name"), {}), item) for item in second]
    return second


def training_pool(name: str = "a", replicas: int = 1, **pool: Any) -> Object:
    """Return a pool of real trainers on the processor."""
    one_thread = {"name": "OMP_NUM_THREADS", "value": "1"}
    template = {"spec": {"containers": [{"name": "trainer", "env": [one_thread]}]}}
    return pool_with({"name": name, "replicas": replicas, "gpus": 0, **pool}, template)


def with_libraries(pool: Mapping[str, Any]) -> Object:
    """Return the pool with torch from the claim of that name, and tasks of the tests."""
    mounts = [
        {"name": LIBRARIES, "mountPath": "/libraries", "readOnly": True},
        {"name": TASKS, "mountPath": "/tasks", "readOnly": True},
    ]
    items = [{"key": file.name, "path": str(file.relative_to(ROOT))} for file in TASK_FILES]
    volumes = [
        {"name": LIBRARIES, "persistentVolumeClaim": {"claimName": LIBRARIES, "readOnly": True}},
        {"name": TASKS, "configMap": {"name": TASKS, "items": items}},
    ]
    path = {"name": "PYTHONPATH", "value": "/tasks:/libraries"}
    container = {"name": "trainer", "env": [path], "volumeMounts": mounts}
    return pool_with(pool, {"spec": {"volumes": volumes, "containers": [container]}})
