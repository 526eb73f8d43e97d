"""Pools' templates and placement, on pods as the cluster has made and run them."""

from __future__ import annotations

from tests.cluster.harness.api import SERVICE_ACCOUNTS, Object
from tests.cluster.harness.manifests import ending, holding, pool_with, run_manifest
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run
from tests.cluster.harness.waiting import until

ONE = {"steps": 1, "batch": 1, "lanes": 1, "unitSteps": 1}
GATE = "example.com/data-is-staged"


def test_a_template_reaches_the_pod_and_a_sidecar_does_not_hold_it_up(namespace: Namespace) -> None:
    namespace.api.create(SERVICE_ACCOUNTS, namespace.name, {"metadata": {"name": "trainers"}})
    run = namespace.apply(run_manifest("patched", [pool_with(ending(units=1), _template(namespace))], data=ONE))
    stalled = run.wait_condition("Stalled", 30, "Unschedulable")
    assert GATE in stalled["message"] or "gate" in stalled["message"].lower()
    (gated,) = run.pods()
    namespace.kubectl("--namespace", namespace.name, "patch", "pod", gated["metadata"]["name"], "--patch", UNGATED)
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 1
    (ended,) = until(lambda: [pod for pod in run.pods() if pod["status"]["phase"] == "Succeeded"], "the pod to end", 30)
    _check_pod(ended, run)


UNGATED = '{"spec": {"schedulingGates": [{"name": "example.com/data-is-staged", "$patch": "delete"}]}}'


def _template(namespace: Namespace) -> Object:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    sidecar = {
        "name": "watcher",
        "image": namespace.images.trainer,
        "imagePullPolicy": namespace.images.policy,
        "command": ["sleep", "3600"],
        "restartPolicy": "Always",
        "securityContext": restricted,
    }
    trainer = {
        "name": "trainer",
        "env": [{"name": "COLOUR", "value": "green"}],
        "resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    return {
        "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/cost": "low"}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "serviceAccountName": "trainers",
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "example.com/spot", "operator": "Exists"}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
            "initContainers": [sidecar],
            "containers": [trainer],
        },
    }


def _check_pod(pod: Object, run: Run) -> None:
    spec, metadata = pod["spec"], pod["metadata"]
    (trainer,) = spec["containers"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["labels"]["gradientmail.io/run-uid"] == run.uid
    assert metadata["annotations"]["example.com/cost"] == "low"
    assert spec["serviceAccountName"] == "trainers"
    assert spec["automountServiceAccountToken"] is False
    assert spec["terminationGracePeriodSeconds"] == 5
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "example.com/spot" in [toleration.get("key") for toleration in spec["tolerations"]]
    assert {"run", "tmp", "shared-memory", "scratch"} <= {volume["name"] for volume in spec["volumes"]}
    assert "/scratch" in [mount["mountPath"] for mount in trainer["volumeMounts"]]
    assert trainer["resources"] == {"requests": {"memory": "16Mi"}, "limits": {"memory": "256Mi"}}
    environment = {entry["name"]: entry.get("value") for entry in trainer["env"]}
    assert environment["COLOUR"] == "green"
    assert environment["GRADIENTMAIL_MAILBOX"] == run.prefix
    assert trainer["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]


def test_gpus_and_one_node_per_host(namespace: Namespace, hosts: list[str]) -> None:
    pool = holding(replicas=len(hosts) + 1, gpus=2, placement="OnePerHost")
    run = namespace.apply(run_manifest("placed", [pool]))
    pods = run.wait_running(len(hosts), 60)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(hosts)
    assert {pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in pods} == {"2"}
    stalled = run.wait_condition("Stalled", 30, "Unschedulable")
    assert "anti-affinity" in stalled["message"]
    status = run.wait(lambda status: status["nodesRunning"] == len(hosts), "the nodes that there is room for", 30)
    assert status["phase"] == "Running", "a run needs no gang: it goes on with the nodes it has"
    run.delete()
    until(namespace.children_are_gone, "all children to go", 60)
