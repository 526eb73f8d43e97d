"""A run's children, as literal manifests."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.manifest import parse_manifest
from gradientrun import names
from gradientrun.build import build_config_map, build_job, build_pod_template
from gradientrun.patch import TemplateError
from gradientrun.runs import Run
from tests.unit.controller.manifests import PREFIX, UID, a_run

OWNER = {
    "apiVersion": "gradientmail.io/v1alpha1",
    "kind": "GradientRun",
    "name": "first",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
LABELS = {
    "app.kubernetes.io/name": "gradientmail",
    "app.kubernetes.io/component": "trainer",
    "app.kubernetes.io/instance": "first",
    "app.kubernetes.io/managed-by": "gradientrun-controller",
    "gradientmail.io/run": "first",
    "gradientmail.io/run-uid": UID,
    "gradientmail.io/attempt": "1",
}
POOL_LABELS = LABELS | {"gradientmail.io/pool": "fast"}


def job(run: Run, pool: int = 0) -> Any:
    return build_job(run, run.pools[pool])


def trainer(run: Run, pool: int = 0) -> Any:
    return job(run, pool)["spec"]["template"]["spec"]["containers"][0]


def test_the_config_map() -> None:
    config_map = build_config_map(a_run())
    data = config_map.pop("data")
    assert config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "first-643f88", "namespace": "team", "labels": LABELS, "ownerReferences": [OWNER]},
        "immutable": True,
    }
    assert data["prefix"] == PREFIX
    assert yaml.safe_load(data["run.yaml"]) == {
        "apiVersion": "gradientmail.io/v1alpha1",
        "kind": "GradientRun",
        "metadata": {"name": "first", "namespace": "team"},
        "spec": {
            "data": {"steps": 40, "batch": 64, "lanes": 4},
            "mailbox": {"url": "s3://bucket/runs/", "secretName": "bucket"},
            "trainer": {"image": "trainer:1"},
            "nodes": [{"name": "fast", "replicas": 2}, {"name": "slow", "gpus": 0}],
            "maxLostUnits": "50%",
        },
    }


def test_the_trainers_manifest_reads_as_the_spec_without_templates() -> None:
    run = a_run(
        trainer={"clipNorm": None, "args": {"depth": None, "width": 64, "name": "1e-4"}},
        startDeadlineSeconds=None,
        nodes=[{"name": "fast", "template": {"spec": {"containers": [{"name": "trainer", "env": [{"name": "KEY"}]}]}}}],
    )
    written = build_config_map(run)["data"]["run.yaml"]
    assert "KEY" not in written
    read = parse_manifest(written).spec  # as the trainer reads it
    assert run.spec is not None
    assert read.trainer == run.spec.trainer
    assert read.trainer.clip_norm is None
    assert read.start_deadline_seconds is None


def test_the_job() -> None:
    built = job(a_run())
    template = built["spec"].pop("template")
    assert built == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "first-fast-807d4f",
            "namespace": "team",
            "labels": POOL_LABELS,
            "ownerReferences": [OWNER],
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimitPerIndex": 3,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [2]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "suspend": False,
        },
    }
    assert template["metadata"] == {
        "labels": POOL_LABELS,
        "annotations": {
            "kubectl.kubernetes.io/default-container": "trainer",
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9090",
            "prometheus.io/path": "/metrics",
        },
    }


def test_the_pod() -> None:
    spec = job(a_run())["spec"]["template"]["spec"]
    container = spec.pop("containers")[0]
    assert spec == {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [
            {"name": "run", "configMap": {"name": "first-643f88"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"gradientmail.io/run-uid": UID, "gradientmail.io/attempt": "1"}},
            }
        ],
    }
    probe = {"httpGet": {"path": "/livez", "port": "metrics"}, "timeoutSeconds": 5}
    assert container == {
        "name": "trainer",
        "image": "trainer:1",
        "command": ["gradientmail"],
        "args": ["train", "/etc/gradientmail/run.yaml"],
        "env": [
            {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
            },
            {"name": "GRADIENTMAIL_NODE", "value": "fast-$(JOB_COMPLETION_INDEX)"},
            {"name": "GRADIENTMAIL_LEARNER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "GRADIENTMAIL_MAILBOX", "value": PREFIX},
            {"name": "GRADIENTMAIL_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "GRADIENTMAIL_METRICS_PORT", "value": "9090"},
            {"name": "GRADIENTMAIL_LOG_FORMAT", "value": "json"},
            {"name": "GRADIENTMAIL_TERMINATION_MESSAGE", "value": "/dev/termination-log"},
            {"name": "GRADIENTMAIL_GRACE_SECONDS", "value": "45"},
            {"name": "HOME", "value": "/tmp"},
        ],
        "envFrom": [{"secretRef": {"name": "bucket"}}],
        "ports": [{"name": "metrics", "containerPort": 9090}],
        "startupProbe": probe | {"periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": probe | {"periodSeconds": 20, "failureThreshold": 6},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": "/etc/gradientmail", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }  # fmt: skip


def test_a_pool_without_gpus_asks_for_none() -> None:
    spec = job(a_run(), pool=1)["spec"]["template"]["spec"]
    assert "resources" not in spec["containers"][0]
    assert "tolerations" not in spec


def test_no_secret_no_reference_to_one() -> None:
    assert "envFrom" not in trainer(a_run(mailbox={"url": "s3://bucket/runs"}))


def test_one_per_host_never_shares_a_host_within_the_attempt() -> None:
    spec = job(a_run(nodes=[{"name": "fast", "placement": "OnePerHost"}]))["spec"]["template"]["spec"]
    assert "topologySpreadConstraints" not in spec
    assert spec["affinity"] == {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"gradientmail.io/run-uid": UID, "gradientmail.io/attempt": "1"}},
                }
            ]
        }
    }


def test_a_pool_added_later_has_a_config_map_that_names_it() -> None:
    nodes = [{"name": "fast", "replicas": 2}, {"name": "slow", "gpus": 0}, {"name": "more"}]
    before, after = build_config_map(a_run()), build_config_map(a_run(nodes=nodes))
    assert before["metadata"]["name"] != after["metadata"]["name"]
    assert yaml.safe_load(after["data"]["run.yaml"])["spec"]["nodes"][2] == {"name": "more"}
    scaled = [{"name": "fast", "replicas": 4}, {"name": "slow", "gpus": 0}]
    assert build_config_map(a_run(nodes=scaled))["metadata"]["name"] == before["metadata"]["name"]


def test_under_a_queue_the_job_is_born_suspended_with_the_queues_labels() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "high", "team": "a"}
    built = job(a_run(labels=labels))
    assert built["spec"]["suspend"] is True
    assert built["metadata"]["labels"] == POOL_LABELS | {
        "kueue.x-k8s.io/queue-name": "gpus",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert "kueue.x-k8s.io/queue-name" not in built["spec"]["template"]["metadata"]["labels"]


def test_the_image_pull_policy_is_passed_on() -> None:
    assert trainer(a_run(trainer={"imagePullPolicy": "Never"}))["imagePullPolicy"] == "Never"
    assert "imagePullPolicy" not in trainer(a_run())


def test_every_part_of_a_template_arrives() -> None:
    template = {
        "metadata": {"labels": {"team": "a", "gradientmail.io/run": "spoofed"}, "annotations": {"note": "x"}},
        "spec": {
            "serviceAccountName": "bucket-reader",
            "automountServiceAccountToken": True,
            "nodeSelector": {"gpu": "a100"},
            "schedulingGates": [{"name": "example.com/quota"}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}}],
            "initContainers": [{"name": "log", "image": "log:1", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "trainer",
                    "resources": {"limits": {"memory": "4Gi"}},
                    "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }
    run = a_run(nodes=[{"name": "fast", "template": template}])
    built = build_pod_template(run, run.pools[0])
    spec, container = built["spec"], built["spec"]["containers"][0]
    assert built["metadata"]["labels"] == POOL_LABELS | {"team": "a"}
    assert built["metadata"]["annotations"]["note"] == "x"
    assert spec["serviceAccountName"] == "bucket-reader"
    assert spec["automountServiceAccountToken"] is True
    assert spec["nodeSelector"] == {"gpu": "a100"}
    assert spec["schedulingGates"] == [{"name": "example.com/quota"}]
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["nvidia.com/gpu", "spot"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert [volume["name"] for volume in spec["volumes"]] == ["run", "tmp", "shared-memory", "data"]
    assert spec["initContainers"] == [{"name": "log", "image": "log:1", "restartPolicy": "Always"}]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}}
    assert container["env"][-1] == {"name": "OMP_NUM_THREADS", "value": "4"}
    assert container["volumeMounts"][-1] == {"name": "data", "mountPath": "/data"}


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ({"containers": []},
         "nodes[fast].template has 'containers': a template is a part of a pod, with metadata and spec"),
        ({"spec": {"containers": [{"name": "trainer", "$patch": "delete"}]}},
         "nodes[fast].template removes the container 'trainer': leave it, it is the node itself"),
        ({"spec": {"restartPolicy": "OnFailure"}},
         "nodes[fast].template.spec.restartPolicy is 'OnFailure': leave it out; "
         "a failed node comes back as a new pod, restartsPerNode times"),
        ({"metadata": None}, "nodes[fast].template removes the pod's labels: leave them, add your own beside them"),
        ({"spec": {"volumes": 3}}, "nodes[fast].template.spec.volumes is 3: a list is expected here"),
    ],
)  # fmt: skip
def test_a_template_that_takes_away_what_a_node_needs_is_refused(template: dict[str, Any], sentence: str) -> None:
    run = a_run(nodes=[{"name": "fast", "template": template}])
    with pytest.raises(TemplateError) as caught:
        build_pod_template(run, run.pools[0])
    assert str(caught.value) == sentence


def of_trainer(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer"} | fields]}}


@pytest.mark.parametrize(
    ("template", "changed"),
    [
        (of_trainer(env=[{"name": "GRADIENTMAIL_MAILBOX", "value": "s3://bucket/shared"}]),
         "the variable GRADIENTMAIL_MAILBOX of the trainer"),
        (of_trainer(env=[{"name": "GRADIENTMAIL_LEARNER", "value": "me"}]),
         "the variable GRADIENTMAIL_LEARNER of the trainer"),
        (of_trainer(env=[{"name": "JOB_COMPLETION_INDEX", "$patch": "delete"}]),
         "the variable JOB_COMPLETION_INDEX of the trainer"),
        (of_trainer(env=[{"$patch": "replace"}]), "the variable JOB_COMPLETION_INDEX of the trainer"),
        (of_trainer(**{"$patch": "replace"}, image="trainer:2"), "the variable JOB_COMPLETION_INDEX of the trainer"),
        (of_trainer(ports=[{"containerPort": 9090, "name": "http"}]), "the trainer's port 9090, named metrics"),
        (of_trainer(ports=None), "the trainer's port 9090, named metrics"),
        (of_trainer(volumeMounts=[{"mountPath": "/etc/gradientmail", "name": "mine"}]),
         "what is mounted at /etc/gradientmail"),
        ({"spec": {"volumes": [{"name": "run", "emptyDir": {}}]}}, "the volume 'run'"),
        (of_trainer(terminationMessagePath="/tmp/words"), "the trainer's terminationMessagePath"),
    ],
)  # fmt: skip
def test_a_template_that_changes_what_the_run_depends_on_is_refused(template: dict[str, Any], changed: str) -> None:
    run = a_run(nodes=[{"name": "fast", "template": template}])
    with pytest.raises(TemplateError) as caught:
        build_pod_template(run, run.pools[0])
    assert str(caught.value) == (f"nodes[fast].template changes {changed}: leave it as it is, the run depends on it")


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["/usr/bin/env"], "args": ["gradientmail", "train", "/etc/gradientmail/run.yaml"]},
        {"ports": [{"containerPort": 9090, "hostPort": 9090}, {"containerPort": 9999, "name": "debug"}]},
        {"env": [{"name": "GRADIENTMAIL_LOG_FORMAT", "value": "text"}, {"name": "HOME", "value": "/home/me"}]},
        {"livenessProbe": None, "volumeMounts": [{"mountPath": "/tmp", "name": "scratch"}]},
        {"image": "mine:1", "securityContext": {"readOnlyRootFilesystem": False}},
    ],
)
def test_what_the_run_does_not_depend_on_may_change(fields: dict[str, Any]) -> None:
    run = a_run(nodes=[{"name": "fast", "template": of_trainer(**fields)}])
    assert trainer(run).items() >= {"name": "trainer", "terminationMessagePath": "/dev/termination-log"}.items()


@pytest.mark.parametrize(("asked", "given"), [(600, "585"), (30, "15"), (5, "1"), (0, "1"), (None, "45"), ("x", "45")])
def test_the_trainer_leaves_sooner_than_its_pod_must(asked: Any, given: str) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": asked}}
    env = trainer(a_run(nodes=[{"name": "fast", "template": template}]))["env"]
    assert {"name": "GRADIENTMAIL_GRACE_SECONDS", "value": given} in env


FIELDS = ["$patch", "metadata", "labels", "spec", "containers", "name", "env", "ports", "volumes", "volumeMounts",
          "tolerations", "restartPolicy", "terminationGracePeriodSeconds", "value", "mountPath"]  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-1, 9090), st.sampled_from(["trainer", "replace", "delete"]))
SHAPES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
)


@given(st.dictionaries(st.sampled_from(["$patch", "metadata", "spec"]), SHAPES))
def test_whatever_shape_a_template_has_it_is_built_or_refused_in_a_sentence(template: dict[str, Any]) -> None:
    run = a_run(nodes=[{"name": "fast", "template": template}])
    try:
        labels, told = build_pod_template(run, run.pools[0])["metadata"]["labels"], ""
    except TemplateError as error:
        labels, told = POOL_LABELS, str(error)
    assert labels.items() >= POOL_LABELS.items()
    assert told == "" or told.startswith("nodes[fast].template")


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"$patch": "replace", "containers": [{"image": "x"}]}},
        {"spec": {"$patch": "replace", "containers": "trainer"}},
        {"spec": {"$patch": "replace", "containers": [None]}},
        {"spec": {"$patch": "replace", "containers": 5}},
        {"$patch": "replace", "spec": None},
        {"$patch": "replace", "spec": [1], "metadata": {"labels": {}}},
    ],
)
def test_a_template_that_replaces_all_by_nonsense_is_refused(template: dict[str, Any]) -> None:
    run = a_run(nodes=[{"name": "fast", "template": template}])
    with pytest.raises(TemplateError):
        build_pod_template(run, run.pools[0])


def test_building_twice_gives_the_same_and_leaves_the_run_alone() -> None:
    run = a_run(nodes=[{"name": "fast", "template": {"spec": {"tolerations": [{"key": "spot"}]}}}])
    assert job(run) == job(run)
    assert run.pools[0].template == {"spec": {"tolerations": [{"key": "spot"}]}}


def test_a_long_name_is_shortened_and_its_pods_stay_within_63_characters() -> None:
    name = names.job_name(run="r" * 63, uid=UID, attempt=1, pool="p" * 40)
    assert name == "r" * 46 + "-a0e57e"
    assert len(f"{name}-999-abcde") == 63
    assert len(names.config_map_name(run="r" * 63, uid=UID, attempt=1, pools=["p" * 40])) == 63


def test_a_cut_never_ends_in_two_dashes() -> None:
    assert names.job_name(run="r" * 45 + "-x", uid=UID, attempt=1, pool="p") == "r" * 45 + "-294027"


@pytest.mark.parametrize(
    "other",
    [
        {"uid": "another"},
        {"attempt": 2},
        {"run": "a-b", "pool": "c"},
    ],
)
def test_names_that_read_alike_differ(other: dict[str, Any]) -> None:
    one: dict[str, Any] = {"run": "a", "uid": UID, "attempt": 1, "pool": "b-c"}
    assert names.job_name(**one) != names.job_name(**one | other)


def test_the_prefix_comes_from_the_uid_and_the_attempt() -> None:
    assert a_run().prefix == PREFIX
    assert a_run(attempt=3).prefix == f"s3://bucket/runs/team/first/{UID}-3"
