"""Strategic merge of a user's pod template patch into a pod template: pure, nothing is mutated.

As `kubectl patch --type strategic` does it: maps merge, null removes, lists of named things merge
by their key, other lists are replaced, and `$patch: delete` or `$patch: replace` in an element or
a map does what it says. Three deliberate differences, each in favour of a short template:
tolerations and envFrom are added to rather than replaced; and where Kubernetes allows just one of
several fields (a volume's source, an env entry's value, a probe's handler), naming another one
replaces the first instead of giving an object with both, which the API server would refuse.

Raises TemplateError, one sentence with the path of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

DIRECTIVE = "$patch"
MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "hostAliases": "ip",
    "readinessGates": "conditionType",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose elements are told apart by a key."""
ADDED_TO = frozenset({"tolerations", "envFrom"})
"""Lists without a key that a patch adds to."""
HANDLERS = frozenset({"httpGet", "exec", "tcpSocket", "grpc"})
VALUES = frozenset({"value", "valueFrom"})
SOURCES = "volumes"


class TemplateError(ValueError):
    """The template cannot be merged: the path of the field, its value and what to write instead."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any], path: str = "template") -> dict[str, Any]:
    """Return `base` with `patch` merged into it. Both are left as they are."""
    directive = patch.get(DIRECTIVE)
    _check_directives(patch, path)
    if directive == "replace":
        whole: dict[str, Any] = _without_nulls({key: value for key, value in patch.items() if key != DIRECTIVE})
        return whole
    result = deepcopy(dict(base))
    for key, value in patch.items():
        if key != DIRECTIVE:
            _merge_field(result, key, value, f"{path}.{key}")
    return result


def _check_directives(patch: Mapping[str, Any], path: str) -> None:
    unknown = next((key for key in patch if key.startswith("$") and key != DIRECTIVE), None)
    if unknown:
        raise TemplateError(f"{path} uses {unknown!r}: only `$patch: delete`, `replace` and `merge` are supported")
    if patch.get(DIRECTIVE) not in (None, "delete", "replace", "merge"):
        raise TemplateError(f"{path}.$patch is {patch[DIRECTIVE]!r}: give delete, replace or merge")


def _merge_field(result: dict[str, Any], key: str, value: Any, path: str) -> None:
    if value is None or (isinstance(value, Mapping) and value.get(DIRECTIVE) == "delete"):
        result.pop(key, None)
    elif isinstance(value, Mapping):
        result[key] = merged(_mapping(result.get(key), path, value), value, path)
        _keep_one(result[key], value, HANDLERS)
    elif isinstance(value, list):
        result[key] = _merged_list(result.get(key) or [], value, key, path)
    elif isinstance(result.get(key), Mapping | list):
        raise TemplateError(f"{path} is {value!r}: a {_kind(result[key])} is expected here")
    else:
        result[key] = value


def _mapping(current: Any, path: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    if current is None or isinstance(current, Mapping):
        return current or {}
    raise TemplateError(f"{path} is {dict(value)!r}: a {_kind(current)} is expected here")


def _merged_list(base: Any, patch: list[Any], key: str, path: str) -> list[Any]:
    if not isinstance(base, list):
        raise TemplateError(f"{path} is a list: a {_kind(base)} is expected here")
    if key in ADDED_TO:
        return [*deepcopy(base), *(deepcopy(item) for item in patch if item not in base)]
    merge_key = MERGE_KEYS.get(key)
    if merge_key is None:
        return deepcopy(patch)
    return _merged_by_key(base, patch, merge_key, path)


def _merged_by_key(base: list[Any], patch: list[Any], merge_key: str, path: str) -> list[Any]:
    elements = [_element(item, merge_key, path) for item in patch]
    if any(item == {DIRECTIVE: "replace"} for item in elements):
        return [_without_nulls(item) for item in elements if item != {DIRECTIVE: "replace"}]
    result = {item[merge_key]: deepcopy(item) for item in base}
    for item in elements:
        identity = item[merge_key]
        if item.get(DIRECTIVE) == "delete":
            result.pop(identity, None)
        else:
            result[identity] = _merged_element(result.get(identity, {}), item, f"{path}[{identity}]", merge_key)
    return list(result.values())


def _element(item: Any, merge_key: str, path: str) -> dict[str, Any]:
    if item == {DIRECTIVE: "replace"}:
        return dict(item)
    if not isinstance(item, Mapping) or not isinstance(item.get(merge_key), str | int):
        raise TemplateError(f"{path} has the element {item!r}: each element needs the field {merge_key!r}")
    return dict(item)


def _merged_element(base: dict[str, Any], item: dict[str, Any], path: str, merge_key: str) -> dict[str, Any]:
    result = merged(base, item, path)
    _keep_one(result, item, VALUES)
    if path.split("[")[0].endswith(f".{SOURCES}"):
        _keep_one(result, item, frozenset(result) - {merge_key})
    return result


def _keep_one(result: dict[str, Any], patch: Mapping[str, Any], alternatives: frozenset[str]) -> None:
    named = alternatives & patch.keys()
    if named:
        for other in (alternatives & result.keys()) - named:
            del result[other]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _kind(value: Any) -> str:
    return "mapping" if isinstance(value, Mapping) else "list" if isinstance(value, list) else "single value"
