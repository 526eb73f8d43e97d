"""The chart on a cluster: its test, upgrades, permissions, namespaces alone, and uninstalling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.harness.api import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    NAMESPACES,
    ROLES,
    RUNS,
    SECRETS,
    Api,
)
from tests.cluster.harness.controller import CRD, NAMESPACE, RELEASE, Controller
from tests.cluster.harness.manifests import holding, queue_pool, run_manifest, training_pool, with_libraries
from tests.cluster.harness.namespaces import Namespace, Namespaces, provide_libraries
from tests.cluster.harness.runs import check_final_counts
from tests.cluster.harness.store import SECRET, Store
from tests.cluster.harness.tool import CommandFailed, Kubectl
from tests.cluster.harness.waiting import stays, until
from tests.servers import CREDENTIALS

SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"

PERMITTED = {
    "gradientruns.gradientmail.io": "get list watch delete",
    "gradientruns.gradientmail.io/status": "patch",
    "gradientruns.gradientmail.io/finalizers": "update",
    "jobs.batch": "get list watch create patch delete",
    "configmaps": "get create",
    "pods": "list watch",
    "events": "list create patch",
}
"""All that the controller may do to objects."""

EVERYONE = {
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
}
"""What every authenticated client may ask about itself."""

FORBIDDEN = [
    "get secrets",
    "list secrets",
    "create pods",
    "delete pods",
    "create pods --subresource=exec",
    "get nodes",
    "list namespaces",
    "update gradientruns",
    "create gradientruns",
    "update jobs",
    "list configmaps",
    "update customresourcedefinitions",
    "create clusterrolebindings",
]


@pytest.fixture
def reinstalled(controller: Controller) -> Iterator[Controller]:
    """The controller for a test that changes the release; put back as it was afterwards."""
    yield controller
    controller.install()


def test_the_controller_has_the_rights_it_needs_and_no_others(controller: Controller) -> None:
    listed = controller.kubectl("auth", "can-i", "--list", "--as", SERVICE_ACCOUNT, "--namespace", "default")
    rights = dict(re.findall(r"^(\S+) +\[\] +\[\] +\[(.*)\]$", listed, re.MULTILINE))
    assert {name: rights[name] for name in rights if name not in EVERYONE} == PERMITTED


@pytest.mark.parametrize("deed", FORBIDDEN)
def test_the_controller_may_not(controller: Controller, deed: str) -> None:
    words = ("auth", "can-i", *deed.split(), "--as", SERVICE_ACCOUNT, "--all-namespaces")
    assert "no" in controller.kubectl.refusal(*words)


def test_helm_test_passes_without_a_bucket_and_trains_with_one(
    reinstalled: Controller, store: Store, namespaces: Namespaces
) -> None:
    helm, api = reinstalled.helm, reinstalled.api
    suspended = helm("test", RELEASE, "--namespace", NAMESPACE)
    assert "Phase:          Succeeded" in suspended
    bucket = "helm-test"
    store.create_bucket(bucket)
    api.create(SECRETS, NAMESPACE, {"metadata": {"name": SECRET}, "stringData": dict(CREDENTIALS)})
    pool = training_pool("test", 2)
    if not reinstalled.images.holds_torch:
        provide_libraries(api, NAMESPACE, reinstalled.images.libraries)
        pool = with_libraries(pool)
    trainer = {"image": reinstalled.images.trainer, "imagePullPolicy": reinstalled.images.policy}
    mailbox = {**store.mailbox(bucket), "url": f"s3://{bucket}/trial"}
    reinstalled.install({"tests": {"mailbox": mailbox, "trainer": trainer, "nodes": [pool], "timeoutSeconds": 300}})
    trained = helm("test", RELEASE, "--namespace", NAMESPACE)
    assert "8 of 8 units consumed" in trained
    assert api.list(RUNS, NAMESPACE) == [], "a test that succeeded leaves nothing"
    assert store.names(f"s3://{bucket}/trial/"), "it trained in the bucket"


def test_an_upgrade_keeps_runs_going(namespace: Namespace, reinstalled: Controller) -> None:
    run = namespace.apply(run_manifest("kept", [queue_pool("a", 2, seconds=0.1)]))
    run.wait_claims(4, 60)
    pods = {pod["metadata"]["uid"] for pod in run.pods()}
    (before,) = reinstalled.pods()
    reinstalled.install({"resyncSeconds": 60})
    (after,) = reinstalled.pods()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    assert {pod["metadata"]["uid"] for pod in run.pods()} == pods
    check_final_counts(run)


def test_serving_some_namespaces_needs_rights_in_those_alone(namespaces: Namespaces, reinstalled: Controller) -> None:
    served, other = namespaces.create("served"), namespaces.create("not-served")
    api = reinstalled.api
    reinstalled.install({"watchNamespaces": [served.name]})
    assert _cluster_wide(api) == []
    roles = [role["metadata"]["namespace"] for role in api.list(ROLES, None, f"app.kubernetes.io/instance={RELEASE}")]
    assert roles == [served.name]
    run = served.apply(run_manifest("here", [queue_pool(seconds=0)]))
    passed_over = other.apply(run_manifest("there", [queue_pool(seconds=0)]))
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    stays(lambda: passed_over.status == {}, "a run elsewhere is left alone", 3, lambda: passed_over.status)
    assert reinstalled.restarts() == 0


def _cluster_wide(api: Api) -> list[str]:
    """Return rights for the whole cluster that the release gives the controller."""
    labels = f"app.kubernetes.io/instance={RELEASE}"
    bindings = [each["metadata"]["name"] for each in api.list(CLUSTER_ROLE_BINDINGS, None, labels)]
    users = "rbac.authorization.k8s.io/aggregate-to-edit=true"
    roles = {each["metadata"]["name"] for each in api.list(CLUSTER_ROLES, None, labels)}
    aggregated = {each["metadata"]["name"] for each in api.list(CLUSTER_ROLES, None, f"{labels},{users}")}
    return [*bindings, *sorted(roles - aggregated)]


def test_uninstalling_leaves_runs_going_and_no_object_stuck(namespaces: Namespaces, reinstalled: Controller) -> None:
    api, namespace = reinstalled.api, namespaces.create("uninstalled")
    run = namespace.apply(run_manifest("going", [queue_pool("a", 2, seconds=0.2)]))
    held = namespace.apply(run_manifest("held", [holding()]))
    run.wait_claims(4, 60)
    held.wait_running(1, 60)
    pods = {pod["metadata"]["uid"] for pod in run.pods()}
    reinstalled.uninstall(keep_runs=True)
    assert api.find(CRDS, None, CRD), "crds.keep is the default"
    assert _cluster_wide(api) == []
    left = [pod["metadata"] for pod in run.pods()]
    assert {metadata["uid"] for metadata in left if "deletionTimestamp" not in metadata} == pods
    held.delete()
    until(
        lambda: [*held.pods(), *held.jobs(), *held.config_maps()] == [],
        "a deleted run's children to go, with no controller",
        60,
    )
    reinstalled.install()
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    reinstalled.kubectl("delete", "gradientruns", "--all", "--all-namespaces", "--cascade=foreground")
    assert namespace.children_are_gone()
    reinstalled.uninstall(keep_runs=False)
    assert api.find(CRDS, None, CRD) is None
    namespaces.delete()
    until(lambda: api.find(NAMESPACES, None, namespace.name) is None, "the namespace to go", 60)


def test_users_of_the_built_in_roles_may_work_with_runs(controller: Controller, namespace: Namespace) -> None:
    kubectl, scope = controller.kubectl, ("--namespace", namespace.name)
    for role in ("view", "edit"):
        kubectl(*scope, "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er")
    for user, verb in (("viewer", "get"), ("editer", "create")):
        until(partial(_may, kubectl, namespace.name, user, verb), f"the aggregated role of the {user}", 30)
    assert not _may(kubectl, namespace.name, "viewer", "create")
    assert not _may(kubectl, namespace.name, "editer", "patch", "--subresource=status")


def _may(kubectl: Kubectl, namespace: str, user: str, verb: str, *more: str) -> bool:
    try:
        kubectl("--namespace", namespace, "auth", "can-i", verb, "gradientruns", *more, "--as", user)
    except CommandFailed:
        return False
    return True
