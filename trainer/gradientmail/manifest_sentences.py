"""What is wrong with a manifest, as sentences: from pydantic's errors and the models' own limits. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from gradientmail.run import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    ENDPOINT_URL,
    LOST_UNITS,
    MAILBOX_URL,
    TASK,
    WORD,
    GradientRun,
    Part,
)
from gradientmail.strict_yaml import Document, Place

Path = tuple[str | int, ...]

PATTERNS = {
    DNS_LABEL: "lower-case letters, digits and dashes, with a letter or digit at both ends",
    DNS_SUBDOMAIN: "lower-case letters, digits, dashes and dots, with a letter or digit at both ends",
    TASK: "package.module:callable",
    MAILBOX_URL: "s3://bucket/prefix or file:///folder",
    ENDPOINT_URL: "http://host:port or https://host:port, without credentials",
    WORD: "one word",
    LOST_UNITS: 'a number such as 12, or a percentage such as "5%"',
}
"""What a pattern asks for, in words."""

NEVER_SHOWN = {"secretName", "endpointURL", "url"}
"""Fields whose wrong value may be a secret, or hold one."""

TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
}


def dotted(path: Path) -> str:
    """Return the path as a person writes it: `spec.nodes[1].replicas`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def sentences(error: ValidationError, document: Document) -> list[tuple[Path, str]]:
    """Return each problem's path and sentence, in the order of the fields."""
    return [pair for details in error.errors(include_url=False) for pair in _sentences(details, document)]


def _sentences(details: ErrorDetails, document: Document) -> Iterator[tuple[Path, str]]:
    path = _known_part(details["loc"])
    match details["type"]:
        case "rules":
            for relative, sentence in details["ctx"]["problems"]:
                here = (*path, *relative.split("."))
                yield here, f"{dotted(here)}: {sentence}"
        case "extra_forbidden":
            yield path, f"{dotted(path)} is not a field{_nearest_name(path)}"
        case "missing":
            yield path, f"{dotted(path)} is missing: it needs {_expected(path)}{_meaning(path)}"
        case _:
            yield path, f"{dotted(path)} is {_shown(path, details['input'])}: {_advice(path, details, document)}"


def _known_part(loc: tuple[int | str, ...]) -> Path:
    """Leave out what pydantic adds to a path, such as the branch of a union."""
    end = len(loc)
    while end > 1 and not (_model_at(loc[: end - 1]) or _is_item(loc[:end]) or _is_entry(loc[:end])):
        end -= 1
    return loc[:end]


def _is_item(path: Path) -> bool:
    return isinstance(path[-1], int)


def _is_entry(path: Path) -> bool:
    field = _field(path[:-1])
    return field is not None and get_origin(field.annotation) is dict


def _model_at(path: Path) -> type[BaseModel] | None:
    """Return the model whose fields stand below the path, if it is one."""
    model: type[BaseModel] | None = GradientRun
    for part in path:
        if isinstance(part, int):
            continue
        field = _fields(model).get(part) if model else None
        model = _model_of(field.annotation) if field else None
    return model


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_of(part))), None)


def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _field(path: Path) -> FieldInfo | None:
    model = _model_at(path[:-1])
    return _fields(model).get(str(path[-1])) if model and path and not _is_item(path) else None


def _nearest_name(path: Path) -> str:
    model = _model_at(path[:-1])
    names = [name for name in _fields(model or Part) if name != "status"]
    plain = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(path[-1]).replace("_", "").replace("-", "").lower(), plain, n=1)
    if near:
        return f": did you mean {plain[near[0]]}?"
    return f" here: the fields are {', '.join(names)}"


def _meaning(path: Path) -> str:
    field = _field(path)
    if field is None or not field.description:
        return ""
    first = field.description.split(". ")[0].rstrip(".")
    return f" ({first[0].lower()}{first[1:]})"


def _schema(path: Path) -> Mapping[str, Any]:
    """Return the JSON schema of the field at a path, its limits at the top."""
    field, model = _field(path), _model_at(path[:-1])
    if field is None or model is None:
        return {}
    schema: Mapping[str, Any] = model.model_json_schema(by_alias=True)["properties"][str(path[-1])]
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    return {**schema, **choices[0]} if choices else schema


def _expected(path: Path) -> str:
    schema = {"type": "string"} if _is_entry(path) else _schema(path)
    if allowed := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
    if (pattern := schema.get("pattern")) in PATTERNS:
        return PATTERNS[pattern] + (f", at most {schema['maxLength']} characters" if "maxLength" in schema else "")
    names = {
        "integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text",
        "array": "a list", "object": "a mapping",
    }  # fmt: skip
    return names.get(schema.get("type", ""), "a mapping") + _limits(schema)


def _limits(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if "exclusiveMaximum" in schema:
        return f" from {low} to less than {schema['exclusiveMaximum']:g}"
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:g} and at most {high:.0f}"
    if "minItems" in schema:
        return f" of {schema['minItems']} to {schema['maxItems']} items"
    return ""


def _shown(path: Path, value: Any) -> str:
    """Say what stands there; not its text where that may be a secret, nor what it holds."""
    if path[-1] in NEVER_SHOWN and isinstance(value, str):
        return "not usable (its value is not shown)"
    match value:
        case None:
            return "null"
        case str():
            return json.dumps(value if len(value) <= 60 else value[:57] + "...", ensure_ascii=False)
        case bool() | int() | float():
            return json.dumps(value)
        case dict() | list():
            return TYPES[type(value)] + (f" of {len(value)} items" if isinstance(value, list) else "")
    return type(value).__name__


def _advice(path: Path, details: ErrorDetails, document: Document) -> str:
    value = details["input"]
    expected = f"expected {_expected(path)}"
    if details["type"] == "string_type" and isinstance(value, bool):
        return f"{expected}{_unquoted(document.place(path), value)}"
    if details["type"] == "string_type" and isinstance(value, int | float):
        return f"{expected}; put it in quotes"
    if isinstance(value, str) and _schema(path).get("type") in ("integer", "number", "boolean"):
        return expected + ("; write it without quotes" if _looks_right(value, str(_schema(path)["type"])) else "")
    if isinstance(value, float) and _schema(path).get("type") == "integer" and value.is_integer():
        return f"{expected}; write {int(value)}"
    return expected + _nearest_choice(path, value)


def _unquoted(place: Place | None, value: bool) -> str:
    meant = json.dumps(value)
    if place is None or place.plain in (None, meant):
        return ""
    return f"; without quotes YAML takes {place.plain} for {meant}, so put it in quotes"


def _looks_right(text: str, kind: str) -> bool:
    if kind == "boolean":
        return text in ("true", "false")
    return text.lstrip("-").replace(".", "", kind == "number").isdigit()


def _nearest_choice(path: Path, value: Any) -> str:
    field = _field(path)
    choices = list(_schema(path).get("enum", ())) if field else []
    plain = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(value.lower(), plain, n=1) if isinstance(value, str) else []
    if near:
        return f"; did you mean {plain[near[0]]}?"
    default = field.default if field else PydanticUndefined
    return f"; leave it out for {default}" if value is None and default not in (None, PydanticUndefined) else ""
