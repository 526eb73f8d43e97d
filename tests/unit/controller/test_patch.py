"""Strategic merge of a pool's template: each rule once, in literal objects."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from gradientrun.patch import TemplateError, merged

BASE: dict[str, Any] = {
    "metadata": {"labels": {"app": "trainer"}},
    "spec": {
        "restartPolicy": "Never",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [{"name": "run", "configMap": {"name": "first"}}, {"name": "tmp", "emptyDir": {}}],
        "containers": [
            {
                "name": "trainer",
                "image": "trainer:1",
                "args": ["train", "run.yaml"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "envFrom": [{"secretRef": {"name": "bucket"}}],
                "ports": [{"name": "metrics", "containerPort": 9090}],
                "livenessProbe": {"httpGet": {"path": "/livez"}, "periodSeconds": 20},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
    },
}


def of_trainer(patch: dict[str, Any]) -> dict[str, Any]:
    """The trainer container after a patch of it."""
    result = merged(BASE, {"spec": {"containers": [{"name": "trainer"} | patch]}})
    container: dict[str, Any] = result["spec"]["containers"][0]
    return container


def test_an_empty_patch_changes_nothing() -> None:
    assert merged(BASE, {}) == BASE


def test_neither_side_is_mutated_nor_shared() -> None:
    patch = {
        "spec": {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}], "hostAliases": [{"ip": "10.0.0.1"}]}
    }
    base_before, patch_before = deepcopy(BASE), deepcopy(patch)
    result = merged(BASE, patch)
    result["spec"]["volumes"][2]["hostPath"]["path"] = "/elsewhere"
    result["spec"]["containers"][0]["env"][0]["value"] = "9"
    assert (base_before, patch_before) == (BASE, patch)


def test_maps_merge_and_null_deletes() -> None:
    result = merged(BASE, {"metadata": {"labels": {"team": "a", "app": None}, "annotations": {"note": "x"}}})
    assert result["metadata"] == {"labels": {"team": "a"}, "annotations": {"note": "x"}}


def test_containers_merge_by_name_and_new_ones_are_added() -> None:
    patch = {"spec": {"containers": [{"name": "trainer", "image": "trainer:2"}, {"name": "log", "image": "log:1"}]}}
    containers = merged(BASE, patch)["spec"]["containers"]
    assert [(container["name"], container["image"]) for container in containers] == [
        ("trainer", "trainer:2"),
        ("log", "log:1"),
    ]


@pytest.mark.parametrize(
    ("field", "patch", "expected"),
    [
        ("env", [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
         [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
        ("env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
         [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "B", "value": "2"}]),
        ("env", [{"name": "A", "$patch": "delete"}], [{"name": "B", "value": "2"}]),
        ("env", [{"$patch": "replace"}, {"name": "Z", "value": "26"}], [{"name": "Z", "value": "26"}]),
        ("envFrom", [{"configMapRef": {"name": "more"}}],
         [{"secretRef": {"name": "bucket"}}, {"configMapRef": {"name": "more"}}]),
        ("ports", [{"name": "debug", "containerPort": 5678}],
         [{"name": "metrics", "containerPort": 9090}, {"name": "debug", "containerPort": 5678}]),
        ("volumeMounts", [{"name": "scratch", "mountPath": "/tmp"}], [{"name": "scratch", "mountPath": "/tmp"}]),
        ("args", ["train", "other.yaml"], ["train", "other.yaml"]),
        ("livenessProbe", {"periodSeconds": 60}, {"httpGet": {"path": "/livez"}, "periodSeconds": 60}),
        ("livenessProbe", {"exec": {"command": ["true"]}}, {"exec": {"command": ["true"]}, "periodSeconds": 20}),
        ("livenessProbe", {"$patch": "replace", "exec": {"command": ["true"]}}, {"exec": {"command": ["true"]}}),
    ],
)  # fmt: skip
def test_lists_and_alternatives(field: str, patch: Any, expected: Any) -> None:
    assert of_trainer({field: patch})[field] == expected


@pytest.mark.parametrize("patch", [None, {"$patch": "delete"}])
def test_a_map_is_deleted(patch: Any) -> None:
    assert "livenessProbe" not in of_trainer({"livenessProbe": patch})


def test_tolerations_are_added_to_and_not_doubled() -> None:
    same, other = {"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}
    assert merged(BASE, {"spec": {"tolerations": [same, other]}})["spec"]["tolerations"] == [same, other]


def test_another_source_replaces_a_volumes_first_one() -> None:
    patch = {"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/scratch"}}]}}
    assert merged(BASE, patch)["spec"]["volumes"] == [
        {"name": "run", "configMap": {"name": "first"}},
        {"name": "tmp", "hostPath": {"path": "/scratch"}},
    ]


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        ({"spec": {"containers": {"image": "x"}}},
         "template.spec.containers is {'image': 'x'}: a list is expected here"),
        ({"spec": {"containers": "x"}}, "template.spec.containers is 'x': a list is expected here"),
        ({"spec": "x"}, "template.spec is 'x': a mapping is expected here"),
        ({"metadata": {"labels": ["a"]}}, "template.metadata.labels is a list: a mapping is expected here"),
        ({"spec": {"containers": [{"image": "x"}]}},
         "template.spec.containers has the element {'image': 'x'}: each element needs the field 'name'"),
        ({"spec": {"$retainKeys": ["a"]}},
         "template.spec uses '$retainKeys': only `$patch: delete`, `replace` and `merge` are supported"),
        ({"spec": {"$patch": "remove"}}, "template.spec.$patch is 'remove': give delete, replace or merge"),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_said_in_a_sentence(patch: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TemplateError) as caught:
        merged(BASE, patch)
    assert str(caught.value) == sentence
