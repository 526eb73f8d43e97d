"""The CustomResourceDefinition, made from the models of the manifest and its status. Pure.

The schema is structural: references are resolved, unions with null become `nullable` or simply
optional, free-form mappings keep their unknown fields. Rules across fields become CEL rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gradientmail.run import API_VERSION, GROUP, KIND, PLURAL, VERSION, GradientRun, Metadata, Part, Pool, Spec
from gradientmail.run_rules import Rule, Transition
from gradientmail.run_status import Condition, LearnerRecord, NodeStatus, PoolStatus, RunStatus

Schema = dict[str, Any]

LIST_KEYS: Mapping[type[BaseModel], list[str]] = {
    Pool: ["name"],
    NodeStatus: ["name"],
    PoolStatus: ["name"],
    LearnerRecord: ["node", "pod"],
    Condition: ["type"],
}
"""Lists whose items have keys: updates then merge item by item."""

KEPT = ("description", "type", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength",
        "minItems", "maxItems")  # fmt: skip

COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Nodes", "integer", ".status.nodesRunning", 0),
    ("Claimed", "integer", ".status.units.claimed", 0),
    ("Consumed", "integer", ".status.units.consumed", 0),
    ("Total", "integer", ".status.units.total", 0),
    ("Progress", "integer", ".status.units.percent", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Prefix", "string", ".status.mailboxPrefix", 1),
)
"""What `kubectl get` prints: name, type, path, and priority 1 for `-o wide` only."""


def custom_resource_definition() -> dict[str, Any]:
    """Return the CRD as JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["grun"],
                "categories": ["gradientmail"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
                    "schema": {"openAPIV3Schema": resource_schema()},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}


def resource_schema() -> Schema:
    """Return the structural schema of the whole resource."""
    name = _simple(Metadata.model_json_schema()["properties"]["name"])
    spec, status = model_schema(Spec), _without_defaults(model_schema(RunStatus))
    # On a cluster nodes share nothing else, so there it is needed.
    spec["required"] = sorted([*spec["required"], "mailbox"])
    return {
        "description": _text(GradientRun.__doc__),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"Version of the manifest's form: {API_VERSION}.", "type": "string"},
            "kind": {"description": f"What this is: {KIND}.", "type": "string"},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": spec,
            "status": status,
        },
    }


def model_schema(model: type[Part]) -> Schema:
    """Return the structural schema of one part of the manifest."""
    generated = model.model_json_schema(by_alias=True)["properties"]
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    schema: Schema = {
        "description": _text(model.__doc__),
        "type": "object",
        "properties": {name: _field_schema(field, generated[name]) for name, field in fields.items()},
    }
    if required := [name for name, field in fields.items() if field.is_required()]:
        schema["required"] = sorted(required)
    if rules := [*_rules(model.rules), *_transitions(model.transitions)]:
        schema["x-kubernetes-validations"] = rules
    return schema


def _field_schema(field: FieldInfo, generated: Schema) -> Schema:
    schema = _with_description(_value_schema(field, generated), field)
    if field.default_factory in (dict, list) or isinstance(field.default_factory, type):
        schema["default"] = [] if field.default_factory is list else {}
    elif not field.is_required() and field.default is not None:
        schema["default"] = field.default
    if field.default is not None and type(None) in get_args(field.annotation):
        schema["nullable"] = True
    return schema


def _with_description(schema: Schema, field: FieldInfo) -> Schema:
    return {**schema, "description": field.description} if field.description else schema


def _value_schema(field: FieldInfo, generated: Schema) -> Schema:
    part = next(_parts_in(field.annotation), None)
    if part and generated.get("type") == "array":
        return {**_simple(generated), **_keyed_list(part)}
    if part:
        return model_schema(part)
    if field.alias == "maxLostUnits":
        return _number_or_percentage(generated)
    return _simple(generated)


def _keyed_list(part: type[Part]) -> Schema:
    keys = LIST_KEYS[part]
    items = model_schema(part)
    return {"items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts_in(inner)


def _number_or_percentage(generated: Schema) -> Schema:
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "minimum": 0,
        "maximum": 999_999_999,
        "maxLength": 9,
        "pattern": generated["pattern"],
    }


def _simple(generated: Schema) -> Schema:
    """Return the structural form of a schema without references."""
    choices = [choice for choice in generated.get("anyOf", ()) if choice.get("type") != "null"]
    generated = {**generated, **choices[0]} if choices else generated
    schema: Schema = {key: generated[key] for key in KEPT if key in generated}
    if "const" in generated:
        schema["enum"] = [generated["const"]]
    if "exclusiveMinimum" in generated:
        schema |= {"minimum": generated["exclusiveMinimum"], "exclusiveMinimum": True}
    if "exclusiveMaximum" in generated:
        schema |= {"maximum": generated["exclusiveMaximum"], "exclusiveMaximum": True}
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    if generated.get("additionalProperties") is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _rules(rules: tuple[Rule, ...]) -> list[Schema]:
    return [
        {
            "rule": rule.cel,
            **({"messageExpression": rule.message_expression} if rule.values else {"message": rule.sentence}),
            "fieldPath": f".{rule.path}",
        }
        for rule in rules
        if rule.cel is not None
    ]


def _transitions(transitions: tuple[Transition, ...]) -> list[Schema]:
    return [
        {
            "rule": transition.rule,
            "message": transition.sentence,
            "fieldPath": f".{transition.path}",
            "reason": "FieldValueForbidden",
        }
        for transition in transitions
    ]


def _without_defaults(schema: Any) -> Any:
    """Leave out the defaults of a status: what is read back must be what was written, or it would be written again."""
    if isinstance(schema, list):
        return [_without_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    properties = {name: _without_defaults(item) for name, item in schema.get("properties", {}).items()}
    rest = {key: _without_defaults(item) for key, item in schema.items() if key not in ("default", "properties")}
    return {**rest, "properties": properties} if properties else rest


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").split())
