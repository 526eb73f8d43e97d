from __future__ import annotations

from typing import Any

import pytest

from gradientrun.cluster import NEEDED
from tests.unit.chart.rendering import Helm, Object, is_test

pytestmark = pytest.mark.timeout(60, func_only=True)

CONTROLLER_RULES = [
    {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns/status"], "verbs": ["patch"]},
    {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create", "patch"]},
]
SUBJECT = [{"kind": "ServiceAccount", "name": "trial-gradientmail", "namespace": "system"}]
TWO_NAMESPACES = 'watchNamespaces=["team-a","team-b"]'


def all_rules(helm: Helm, *settings: str) -> list[Any]:
    rendered = helm.render(*settings)
    return [rule for kind in ("ClusterRole", "Role") for role in rendered.of_kind(kind) for rule in role["rules"]]


def names(found: list[Object]) -> list[tuple[str | None, str]]:
    return [(entry["metadata"].get("namespace"), entry["metadata"]["name"]) for entry in found if not is_test(entry)]


def test_cluster_wide_by_default(helm: Helm) -> None:
    rendered = helm.render()
    binding = rendered.one("ClusterRoleBinding", "system-trial-gradientmail")
    assert rendered.one("ClusterRole", "system-trial-gradientmail")["rules"] == CONTROLLER_RULES
    assert binding["roleRef"]["kind"] == "ClusterRole"
    assert binding["roleRef"]["name"] == "system-trial-gradientmail"
    assert binding["subjects"] == SUBJECT
    assert names(rendered.of_kind("Role")) == []
    assert names(rendered.of_kind("RoleBinding")) == []


def test_watched_namespaces_get_a_role_each_and_the_cluster_nothing(helm: Helm) -> None:
    rendered = helm.render(TWO_NAMESPACES)
    expected = [("team-a", "system-trial-gradientmail"), ("team-b", "system-trial-gradientmail")]
    assert names(rendered.of_kind("Role")) == expected
    assert names(rendered.of_kind("RoleBinding")) == expected
    assert names(rendered.of_kind("ClusterRoleBinding")) == []
    for role in rendered.of_kind("Role"):
        assert is_test(role) or role["rules"] == CONTROLLER_RULES
    for binding in rendered.of_kind("RoleBinding"):
        assert is_test(binding) or binding["subjects"] == SUBJECT


def test_installs_without_any_right_on_the_cluster(helm: Helm) -> None:
    rendered = helm.render(TWO_NAMESPACES, "crds.enabled=false", "rbac.aggregateToUserRoles=false")
    assert rendered.kinds() == [
        "Deployment",
        "Role",
        "Role",
        "RoleBinding",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ]


def test_controller_may_do_what_it_needs_and_no_more() -> None:
    granted = {
        (verb, group, resource)
        for rule in CONTROLLER_RULES
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        (asked["verb"], asked["group"], "/".join(filter(None, [asked["resource"], asked["subresource"]])))
        for asked in (permission.attributes for permission in NEEDED)
    }
    # The API server asks for it on the owner of a Job, not the controller.
    assert granted == needed | {("update", "gradientmail.io", "gradientruns/finalizers")}


@pytest.mark.parametrize("settings", [(), (TWO_NAMESPACES,)])
def test_secrets_stay_out_of_reach(helm: Helm, settings: tuple[str, ...]) -> None:
    for rule in all_rules(helm, *settings):
        assert not {"*", "secrets", "pods/exec", "serviceaccounts", "serviceaccounts/token"} & set(rule["resources"])
        assert not {"*", "escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert "*" not in rule["apiGroups"]


def test_user_roles_are_aggregated(helm: Helm) -> None:
    rendered = helm.render()
    view = rendered.one("ClusterRole", "system-trial-gradientmail-view")
    edit = rendered.one("ClusterRole", "system-trial-gradientmail-edit")
    assert aggregated_to(view) == {"view", "edit", "admin"}
    assert aggregated_to(edit) == {"edit", "admin"}
    assert view["rules"] == [
        {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns/status"], "verbs": ["get"]},
    ]
    assert edit["rules"] == [
        {
            "apiGroups": ["gradientmail.io"],
            "resources": ["gradientruns"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
    ]


def aggregated_to(role: Object) -> set[str]:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return {
        name.removeprefix(prefix)
        for name, value in role["metadata"]["labels"].items()
        if name.startswith(prefix) and value == "true"
    }


def test_roles_can_be_left_to_an_administrator(helm: Helm) -> None:
    rendered = helm.render("rbac.create=false", "rbac.aggregateToUserRoles=false", "crds.enabled=false")
    assert rendered.kinds() == ["Deployment", "Service", "ServiceAccount"]


def test_existing_service_account(helm: Helm) -> None:
    rendered = helm.render('serviceAccount={"create":false,"name":"made-by-hand"}')
    assert [entry for entry in rendered.of_kind("ServiceAccount") if not is_test(entry)] == []
    binding = rendered.one("ClusterRoleBinding", "system-trial-gradientmail")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "made-by-hand", "namespace": "system"}]


def test_annotations_of_the_service_account(helm: Helm) -> None:
    rendered = helm.render('serviceAccount.annotations={"example.com/role":"controller"}')
    account = rendered.one("ServiceAccount", "trial-gradientmail")
    assert account["metadata"]["annotations"] == {"example.com/role": "controller"}
