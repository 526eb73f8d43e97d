"""What a pool's template must leave as it is, for the trainer and the controller to find each other: pure.

A template may bring whatever shape a person or a program gave it; the schema of the resource does
not look inside. Only what the API server would accept, and what would then break the run in
silence, is refused here: an unknown field or a wrong type is left to the API server's own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradientrun import names
from gradientrun.patch import TemplateError
from gradientrun.runs import Manifest

FREE_VARIABLES = frozenset({"GRADIENTMAIL_LOG_FORMAT", "GRADIENTMAIL_GRACE_SECONDS", "HOME"})
"""The trainer's variables that a template may change."""


def check_template(template: Mapping[str, Any], base: Manifest, where: str) -> None:
    """Compare a merged pod template with the one it was made from. Raises TemplateError."""
    labels = _mapping(template.get("metadata")).get("labels")
    if not isinstance(labels, Mapping):
        raise TemplateError(f"{where} removes the pod's labels: leave them, add your own beside them")
    spec = _mapping(template.get("spec"))
    trainer = _named(spec.get("containers"), names.CONTAINER)
    if not trainer:
        raise TemplateError(f"{where} removes the container {names.CONTAINER!r}: leave it, it is the node itself")
    if spec.get("restartPolicy") != "Never":
        raise TemplateError(
            f"{where}.spec.restartPolicy is {spec.get('restartPolicy')!r}: leave it out; "
            "a failed node comes back as a new pod, restartsPerNode times"
        )
    changed = next(_changed(spec, trainer, base["spec"]), None)
    if changed:
        raise TemplateError(f"{where} changes {changed}: leave it as it is, the run depends on it")


def _changed(spec: Mapping[str, Any], trainer: Mapping[str, Any], base: Manifest) -> Iterator[str]:
    container = base["containers"][0]
    for variable in container["env"]:
        name = variable["name"]
        if name not in FREE_VARIABLES and _named(trainer.get("env"), name) != variable:
            yield f"the variable {name} of the trainer"
    (port,) = container["ports"]
    if port.items() - _named(trainer.get("ports"), port["name"]).items():
        yield f"the trainer's port {port['containerPort']}, named {port['name']}"
    mount = container["volumeMounts"][0]
    if _named(trainer.get("volumeMounts"), mount["mountPath"], "mountPath") != mount:
        yield f"what is mounted at {mount['mountPath']}"
    if _named(spec.get("volumes"), mount["name"]) != base["volumes"][0]:
        yield f"the volume {mount['name']!r}"
    if trainer.get("terminationMessagePath") != container["terminationMessagePath"]:
        yield "the trainer's terminationMessagePath"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _named(items: Any, name: str, key: str = "name") -> Mapping[str, Any]:
    """Return the item of a list that bears a name; an empty one if there is none."""
    found = (item for item in (items if isinstance(items, list) else []) if _mapping(item).get(key) == name)
    return next(found, {})
