from __future__ import annotations

import json
from typing import Any

import pytest

from gradientmail.run import GradientRun
from tests.unit.chart.rendering import Helm, Object, is_test

pytestmark = pytest.mark.timeout(60, func_only=True)

MAILBOX = 'tests.mailbox={"url":"s3://bucket/helm-test","secretName":"bucket"}'
NAME = "trial-gradientmail-test"


def container(helm: Helm, *settings: str) -> Any:
    (found,) = helm.render(*settings).one("Pod", NAME)["spec"]["containers"]
    return found


def manifest(helm: Helm, *settings: str) -> Any:
    (entry,) = container(helm, *settings)["env"]
    assert entry["name"] == "GRADIENTRUN_TEST_MANIFEST"
    return json.loads(entry["value"])


def validated(written: dict[str, Any]) -> GradientRun:
    """The manifest as the API server stores it: with a name made from generateName."""
    return GradientRun.model_validate(written | {"metadata": {"name": written["metadata"]["generateName"] + "abcde"}})


def test_without_a_mailbox_the_run_is_suspended(helm: Helm) -> None:
    run = validated(manifest(helm))
    assert run.spec.suspend is True
    assert container(helm)["args"] == ["--until=Suspended", "--timeout-seconds=600"]


def test_with_a_mailbox_the_run_trains(helm: Helm) -> None:
    run = validated(manifest(helm, MAILBOX))
    assert run.spec.suspend is False
    assert run.spec.mailbox is not None
    assert run.spec.mailbox.url == "s3://bucket/helm-test"
    assert run.spec.mailbox.secret_name == "bucket"
    assert container(helm, MAILBOX)["args"] == ["--until=Complete", "--timeout-seconds=600"]


def test_run_cleans_up_after_itself(helm: Helm) -> None:
    written = manifest(helm, MAILBOX, "tests.timeoutSeconds=120")
    assert written["metadata"]["generateName"] == "trial-gradientmail-test-"
    assert written["metadata"]["namespace"] == "system"
    assert written["spec"]["startDeadlineSeconds"] == 120
    assert written["spec"]["activeDeadlineSeconds"] == 120
    assert written["spec"]["ttlSecondsAfterFinished"] == 600


def test_run_takes_its_parts_from_the_values(helm: Helm) -> None:
    run = validated(
        manifest(
            helm,
            MAILBOX,
            'tests.trainer={"image":"mirror/trainer:1","microBatch":2}',
            'tests.nodes=[{"name":"cpu","replicas":1,"gpus":0,"template":{"spec":{"nodeSelector":{"pool":"cpu"}}}}]',
            'tests.data={"steps":4,"batch":4,"lanes":1,"unitSteps":1}',
        )
    )
    assert run.spec.trainer.image == "mirror/trainer:1"
    assert [(pool.name, pool.replicas, pool.template) for pool in run.spec.nodes] == [
        ("cpu", 1, {"spec": {"nodeSelector": {"pool": "cpu"}}})
    ]
    assert run.spec.data.steps == 4


def test_everything_of_the_test_is_removed_when_it_succeeds(helm: Helm) -> None:
    found = [entry for entry in helm.render().objects if is_test(entry)]
    assert sorted(entry["kind"] for entry in found) == ["Pod", "Role", "RoleBinding", "ServiceAccount"]
    for entry in found:
        annotations = entry["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"


def test_permissions_are_there_before_the_pod(helm: Helm) -> None:
    found = [entry for entry in helm.render().objects if is_test(entry)]
    weights = {entry["kind"]: int(entry["metadata"]["annotations"]["helm.sh/hook-weight"]) for entry in found}
    assert weights == {"ServiceAccount": -2, "Role": -2, "RoleBinding": -1, "Pod": 0}


def test_what_the_test_says_is_shown_by_helm(helm: Helm) -> None:
    annotations = helm.render().one("Pod", NAME)["metadata"]["annotations"]
    assert annotations["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [
        ((), "system"),
        (('tests.namespace="trials"',), "trials"),
        (('watchNamespaces=["a","b"]',), "a"),
        (('watchNamespaces=["a","b"]', 'tests.namespace="b"'), "b"),
    ],
)
def test_run_is_made_where_the_controller_looks(helm: Helm, settings: tuple[str, ...], namespace: str) -> None:
    rendered = helm.render(*settings)
    role, binding = rendered.one("Role", NAME), rendered.one("RoleBinding", NAME)
    assert manifest(helm, *settings)["metadata"]["namespace"] == namespace
    assert role["metadata"]["namespace"] == namespace
    assert role["rules"] == [
        {"apiGroups": ["gradientmail.io"], "resources": ["gradientruns"], "verbs": ["create", "get", "delete"]}
    ]
    assert binding["metadata"]["namespace"] == namespace
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "system"}]
    assert rendered.one("Pod", NAME)["metadata"]["namespace"] == "system"


def test_pod_passes_restricted_pod_security(helm: Helm) -> None:
    spec = helm.render().one("Pod", NAME)["spec"]
    controller: Object = helm.render().one("Deployment", "trial-gradientmail")["spec"]["template"]["spec"]
    assert spec["securityContext"] == controller["securityContext"]
    assert spec["containers"][0]["securityContext"] == controller["containers"][0]["securityContext"]
    assert spec["containers"][0]["image"] == controller["containers"][0]["image"]
    assert spec["restartPolicy"] == "Never"
