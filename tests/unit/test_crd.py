"""The CRD: up to date in the chart, structural, bounded, and in step with the models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradientmail.crd import custom_resource_definition, resource_schema
from gradientmail.run import Data, MailboxSpec, Pool, Spec
from gradientmail.run_rules import Rule, Value, cel_string

ROOT = Path(__file__).resolve().parents[2]

Schema = dict[str, Any]


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


@pytest.fixture(scope="module")
def spec() -> Schema:
    schema: Schema = resource_schema()["properties"]["spec"]
    return schema


def test_the_charts_template_and_the_document_are_up_to_date() -> None:
    check = subprocess.run([sys.executable, "hack/crd.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


def test_the_schema_is_structural() -> None:
    for path, schema in schemas(resource_schema()):
        assert schema.keys().isdisjoint(
            {"$ref", "$defs", "oneOf", "allOf", "additionalProperties", "title", "const"}
        ), path
        assert "type" in schema or schema["x-kubernetes-int-or-string"], path
        assert "anyOf" not in schema or "x-kubernetes-int-or-string" in schema, path


def test_every_field_is_described_and_every_list_and_text_is_bounded() -> None:
    for path, schema in schemas(resource_schema()):
        if path not in ("", ".metadata"):
            assert schema.get("description"), path
        if schema.get("type") == "array":
            assert schema["maxItems"] <= 10_000, path
            assert schema["x-kubernetes-list-type"] == "map", path
        if schema.get("type") == "string" and path not in (".apiVersion", ".kind"):
            assert schema.keys() & {"maxLength", "enum", "format"}, path


def test_defaults_are_those_of_the_models(spec: Schema) -> None:
    assert spec["properties"]["trainer"]["default"] == {}
    assert spec["properties"]["trainer"]["properties"]["args"]["default"] == {}
    assert spec["properties"]["trainer"]["properties"]["clipNorm"]["default"] == 1.0
    assert spec["properties"]["nodes"]["items"]["properties"]["replicas"]["default"] == 1
    assert spec["properties"]["maxLostUnits"]["default"] == "5%"
    assert "default" not in spec["properties"]["activeDeadlineSeconds"]


def test_only_a_null_that_means_something_is_kept(spec: Schema) -> None:
    nullable = [path for path, schema in schemas(spec) if schema.get("nullable")]
    assert nullable == [".trainer.clipNorm", ".startDeadlineSeconds"]


def test_a_cluster_needs_a_mailbox_and_a_machine_does_not(spec: Schema) -> None:
    assert spec["required"] == ["data", "mailbox", "nodes"]
    assert not Spec.model_fields["mailbox"].is_required()


def test_a_status_has_no_defaults() -> None:
    status = resource_schema()["properties"]["status"]
    assert [path for path, schema in schemas(status) if "default" in schema] == []


def test_keys_of_lists_are_required() -> None:
    lists = {path: schema for path, schema in schemas(resource_schema()) if schema.get("type") == "array"}
    assert sorted(lists) == [
        ".spec.nodes", ".status.conditions", ".status.learners", ".status.nodes", ".status.pools",
    ]  # fmt: skip
    for path, schema in lists.items():
        assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"]), path


def test_names_and_columns() -> None:
    definition = custom_resource_definition()
    assert definition["metadata"]["name"] == "gradientruns.gradientmail.io"
    assert definition["spec"]["names"]["shortNames"] == ["grun"]
    assert definition["spec"]["names"]["categories"] == ["gradientmail"]
    (version,) = definition["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Phase", "Nodes", "Claimed", "Consumed", "Total", "Progress", "Age", "Prefix",
    ]  # fmt: skip
    assert [column.get("priority", 0) for column in version["additionalPrinterColumns"]] == [0] * 7 + [1]


def test_columns_read_fields_that_exist() -> None:
    paths = {path for path, _ in schemas(resource_schema())}
    (version,) = custom_resource_definition()["spec"]["versions"]
    read = {column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert read - paths == {".metadata.creationTimestamp"}


def test_rules_name_fields_that_exist_and_say_what_to_do() -> None:
    everything = dict(schemas(resource_schema()))
    rules = [(path, rule) for path, schema in everything.items() for rule in schema.get("x-kubernetes-validations", [])]
    for path, rule in rules:
        assert f"{path}{rule['fieldPath']}" in everything
        assert ("message" in rule) != ("messageExpression" in rule)
    written = [rule for part in (Data, MailboxSpec, Pool, Spec) for rule in part.rules if rule.cel]
    updates = [transition for part in (Data, MailboxSpec, Pool, Spec) for transition in part.transitions]
    assert len(rules) == len(written) + len(updates)
    assert len(written) == 6
    assert len(updates) == 10


def test_a_sentence_in_cel() -> None:
    rule = Rule(
        path="lanes",
        holds=lambda _: False,
        sentence='lanes is {lanes} of {all}: 100% "wrong"',
        cel="false",
        values={"lanes": Value("self.lanes", lambda part: part["lanes"]), "all": Value("4", lambda _: 4)},
    )
    assert rule.message_expression == r'"lanes is %d of %d: 100%% \"wrong\"".format([self.lanes, 4])'
    assert rule.sentence_for({"lanes": 3}) == 'lanes is 3 of 4: 100% "wrong"'
    assert cel_string("a\\b") == r'"a\\b"'
