from __future__ import annotations

from typing import Any

import pytest

from gradientrun.settings import Settings, read_settings
from tests.unit.chart.rendering import Helm, Object, is_test

pytestmark = pytest.mark.timeout(60, func_only=True)

RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def deployment(helm: Helm, *settings: str) -> Object:
    return helm.render(*settings).one("Deployment", "trial-gradientmail")


def pod(helm: Helm, *settings: str) -> Any:
    return deployment(helm, *settings)["spec"]["template"]["spec"]


def environment(helm: Helm, *settings: str) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod(helm, *settings)["containers"][0]["env"]}


def test_one_controller_at_a_time(helm: Helm) -> None:
    spec = deployment(helm)["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_selector_matches_the_pods_and_survives_upgrades(helm: Helm) -> None:
    spec = deployment(helm)["spec"]
    selector = {
        "app.kubernetes.io/name": "gradientmail",
        "app.kubernetes.io/instance": "trial",
        "app.kubernetes.io/component": "controller",
    }
    assert spec["selector"]["matchLabels"] == selector
    assert spec["template"]["metadata"]["labels"].items() >= selector.items()


def test_pod_passes_restricted_pod_security(helm: Helm) -> None:
    spec = pod(helm)
    (container,) = spec["containers"]
    assert spec["securityContext"] == RESTRICTED_POD
    assert container["securityContext"] == RESTRICTED_CONTAINER
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["volumes"] == [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]


def test_probes_ask_whether_work_is_done(helm: Helm) -> None:
    (container,) = pod(helm)["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080, "protocol": "TCP"}]
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_resources_are_bounded(helm: Helm) -> None:
    (container,) = pod(helm)["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }


def test_defaults_reach_the_controller(helm: Helm) -> None:
    assert environment(helm) == {
        "GRADIENTRUN_WATCH_NAMESPACES": "",
        "GRADIENTRUN_METRICS_PORT": "8080",
        "GRADIENTRUN_RESYNC_SECONDS": "300",
        "GRADIENTRUN_LOG_FORMAT": "json",
        "GRADIENTRUN_LOG_LEVEL": "info",
    }


def test_controller_understands_what_it_is_given(helm: Helm) -> None:
    assert read_settings([], environment(helm)) == Settings()
    given = read_settings([], environment(helm, 'watchNamespaces=["team-a","team-b"]', "resyncSeconds=60"))
    assert given == Settings(namespaces=("team-a", "team-b"), resync_seconds=60.0)


def test_values_reach_the_controller(helm: Helm) -> None:
    values = environment(
        helm,
        'watchNamespaces=["team-a","team-b"]',
        "metrics.port=9400",
        "resyncSeconds=60",
        'log={"format":"text","level":"debug"}',
        'extraEnv=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]',
    )
    assert values == {
        "GRADIENTRUN_WATCH_NAMESPACES": "team-a,team-b",
        "GRADIENTRUN_METRICS_PORT": "9400",
        "GRADIENTRUN_RESYNC_SECONDS": "60",
        "GRADIENTRUN_LOG_FORMAT": "text",
        "GRADIENTRUN_LOG_LEVEL": "debug",
        "HTTPS_PROXY": "http://proxy:3128",
    }


def test_large_numbers_are_not_written_as_powers_of_ten(helm: Helm) -> None:
    assert environment(helm, "resyncSeconds=86400")["GRADIENTRUN_RESYNC_SECONDS"] == "86400"


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ((), "ghcr.io/gradientmail/controller:0.1.0"),
        (('image.repository="mirror/controller"', 'image.tag="0.2.0"'), "mirror/controller:0.2.0"),
        (
            (f'image.digest="sha256:{"a" * 64}"', 'image.tag="0.2.0"'),
            f"ghcr.io/gradientmail/controller@sha256:{'a' * 64}",
        ),
    ],
)
def test_image(helm: Helm, settings: tuple[str, ...], image: str) -> None:
    assert pod(helm, *settings)["containers"][0]["image"] == image


def test_scheduling_values_reach_the_pod(helm: Helm) -> None:
    affinity: Any = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    spec = pod(
        helm,
        'priorityClassName="system-cluster-critical"',
        'nodeSelector={"pool":"system"}',
        'tolerations=[{"key":"dedicated","operator":"Exists"}]',
        'affinity={"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}',
        'imagePullSecrets=[{"name":"registry"}]',
        "terminationGracePeriodSeconds=5",
    )
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["nodeSelector"] == {"pool": "system"}
    assert spec["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert spec["affinity"] == affinity
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["terminationGracePeriodSeconds"] == 5


def test_pod_metadata_can_be_added(helm: Helm) -> None:
    metadata = deployment(helm, 'podLabels={"team":"ml"}', 'podAnnotations={"note":"kept"}')["spec"]["template"][
        "metadata"
    ]
    assert metadata["labels"]["team"] == "ml"
    assert metadata["annotations"]["note"] == "kept"


def test_token_is_mounted_by_the_controller_alone(helm: Helm) -> None:
    account = helm.render().one("ServiceAccount", "trial-gradientmail")
    assert account["automountServiceAccountToken"] is False
    assert pod(helm)["automountServiceAccountToken"] is True
    assert pod(helm)["serviceAccountName"] == "trial-gradientmail"


def test_metrics_service_leads_to_the_pod(helm: Helm) -> None:
    service = helm.render().one("Service", "trial-gradientmail-metrics")
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 8080, "targetPort": "metrics", "protocol": "TCP"}]
    assert service["spec"]["selector"] == deployment(helm)["spec"]["selector"]["matchLabels"]
    assert helm.render("metrics.service.enabled=false").of_kind("Service") == []


def test_network_policy_is_made_on_request(helm: Helm) -> None:
    assert helm.render().of_kind("NetworkPolicy") == []
    peers = '[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]'
    rendered = helm.render(
        "networkPolicy.enabled=true", "networkPolicy.apiServerPorts=[6443]", f"networkPolicy.metricsFrom={peers}"
    )
    assert rendered.one("NetworkPolicy", "trial-gradientmail")["spec"] == {
        "podSelector": {"matchLabels": deployment(helm)["spec"]["selector"]["matchLabels"]},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "ports": [{"port": "metrics", "protocol": "TCP"}],
                "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            }
        ],
        "egress": [
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
            {"ports": [{"port": 6443, "protocol": "TCP"}]},
            {
                "to": [
                    {
                        "namespaceSelector": {},
                        "podSelector": {"matchExpressions": [{"key": "gradientmail.io/run", "operator": "Exists"}]},
                    }
                ],
                "ports": [{"port": "metrics", "protocol": "TCP"}],
            },
        ],
    }


@pytest.mark.parametrize(
    ("release", "settings", "name"),
    [
        ("trial", (), "trial-gradientmail"),
        ("gradientmail", (), "gradientmail"),
        ("trial", ('nameOverride="runs"',), "trial-runs"),
        ("trial", ('fullnameOverride="runs"',), "runs"),
        ("a" * 53, (), "a" * 50),
    ],
)
def test_names(helm: Helm, release: str, settings: tuple[str, ...], name: str) -> None:
    rendered = helm.render(*settings, release=release)
    assert [found["metadata"]["name"] for found in rendered.of_kind("Deployment")] == [name]
    assert all(len(found["metadata"]["name"]) <= 63 for found in rendered.of_kind("Pod") + rendered.of_kind("Service"))


def test_every_object_carries_the_common_labels(helm: Helm) -> None:
    for found in helm.render('commonLabels={"cost-centre":"ml"}').objects:
        labels = found["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm", found["kind"]
        assert labels["app.kubernetes.io/instance"] == "trial", found["kind"]
        assert labels["cost-centre"] == "ml", found["kind"]


def test_everything_but_cluster_wide_objects_names_its_namespace(helm: Helm) -> None:
    for found in helm.render().objects:
        wide = found["kind"] in {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
        assert found["metadata"].get("namespace") == (None if wide else "system"), found["kind"]


def test_nothing_is_installed_beside_the_controller(helm: Helm) -> None:
    installed = helm.render("crds.enabled=false").kinds()
    assert installed == [
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "Service",
        "ServiceAccount",
    ]
    assert any(is_test(found) for found in helm.render().objects)
