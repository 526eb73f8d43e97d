from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gradientmail.run import MAILBOX_URL
from tests.unit.chart.rendering import CHART, Helm

pytestmark = pytest.mark.timeout(60, func_only=True)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("replicaCount=2", "at '': additional properties 'replicaCount' not allowed"),
        ("crds.keeep=true", "at '/crds': additional properties 'keeep' not allowed"),
        ('watchNamespaces=["Team_A"]', "at '/watchNamespaces/0': 'Team_A' does not match pattern"),
        ('watchNamespaces="team-a"', "at '/watchNamespaces': got string, want array"),
        ('watchNamespaces=["a","a"]', "at '/watchNamespaces': items at 0 and 1 are equal"),
        ('image.digest="latest"', "at '/image/digest': 'latest' does not match pattern"),
        ('image.pullPolicy="Sometimes"', "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("resyncSeconds=1", "at '/resyncSeconds': minimum: got 1, want 10"),
        ("metrics.port=80", "at '/metrics/port': minimum: got 80, want 1,024"),
        ('log.format="xml"', "at '/log/format': value must be one of 'json', 'text'"),
        ('tests.mailbox.url="https://bucket"', "at '/tests/mailbox/url': 'https://bucket' does not match pattern"),
        ("networkPolicy.apiServerPorts=[]", "at '/networkPolicy/apiServerPorts': minItems: got 0, want 1"),
        ('extraEnv=[{"value":"x"}]', "at '/extraEnv/0': missing property 'name'"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, setting: str, sentence: str) -> None:
    assert sentence in helm.refusal(setting)


def test_missing_service_account_is_asked_for(helm: Helm) -> None:
    assert "serviceAccount.create is false: name the existing service account in serviceAccount.name." in helm.refusal(
        "serviceAccount.create=false"
    )


def test_tests_namespace_must_be_served(helm: Helm) -> None:
    assert (
        'tests.namespace is "elsewhere", which the controller does not serve: give one of watchNamespaces (a, b).'
        in helm.refusal('tests.namespace="elsewhere"', 'watchNamespaces=["a","b"]')
    )


def test_old_kubernetes_is_refused(helm: Helm) -> None:
    assert "chart requires kubeVersion: >=1.30.0-0" in helm.refusal(kubernetes="1.29.9")


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ('watchNamespaces=["a"]', "crds.enabled=false", "rbac.create=false", "networkPolicy.enabled=true"),
    ],
)
def test_lint_is_clean(helm: Helm, settings: tuple[str, ...]) -> None:
    report = helm.lint(*settings)
    assert "1 chart(s) linted, 0 chart(s) failed" in report
    assert "[WARNING]" not in report
    assert "[ERROR]" not in report


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}" if path else name)


def paths(values: dict[str, Any], described: set[str], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        here = f"{path}.{name}" if path else name
        yield here
        if isinstance(value, dict) and here in described:
            yield from paths(value, described, here)


def test_every_value_is_in_the_schema_and_the_schema_has_no_other() -> None:
    schema = dict(schemas(json.loads((CHART / "values.schema.json").read_text())))
    closed = {path for path, part in schema.items() if is_closed(part)}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    expected = {path for path in schema if path and (path.rpartition(".")[0] in closed)}
    assert set(paths(values, closed)) == expected - {"global", "resources.claims"}


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text()
    closed = {path for path, part in schemas(json.loads((CHART / "values.schema.json").read_text())) if is_closed(part)}
    leaves = set(paths(yaml.safe_load(text), closed)) - closed
    assert [path for path in sorted(leaves) if not has_comment(text, path)] == []


def is_closed(part: dict[str, Any]) -> bool:
    return part.get("additionalProperties") is False


def has_comment(text: str, path: str) -> bool:
    indent, name = "  " * path.count("."), path.rpartition(".")[2]
    return (
        path.startswith("resources.") or re.search(rf"^{indent}# .*\n{indent}{name}:", text, re.MULTILINE) is not None
    )


def test_mailbox_urls_are_those_that_the_resource_takes() -> None:
    schema = dict(schemas(json.loads((CHART / "values.schema.json").read_text())))
    assert schema["tests.mailbox.url"]["pattern"] == f"^$|{MAILBOX_URL}"
