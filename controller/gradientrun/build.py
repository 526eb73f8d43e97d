"""A run's children as manifests: pure functions of the run, so that every reconcile builds the same.

Assumes that the spec has been validated. Raises TemplateError for a pool's template that cannot
be merged or that takes away what the trainer needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradientmail.exits import Exit
from gradientmail.run import API_VERSION, KIND, Pool, Spec
from gradientmail.strict_yaml import dump
from gradientrun import names
from gradientrun.patch import TemplateError, merged
from gradientrun.required import check_template
from gradientrun.runs import Manifest, Run

MOUNT_PATH = "/etc/gradientmail"
MANIFEST_FILE = "run.yaml"
PREFIX_FILE = "prefix"
TERMINATION_LOG = "/dev/termination-log"
POD_GRACE_SECONDS = 60
MOST_GRACE_SECONDS = 86_400
LAST_WORDS_SECONDS = 15
"""The trainer gives itself so much less time after SIGTERM than its pod has, so that its last words get out."""
GPU = "nvidia.com/gpu"
SCRAPE_ANNOTATIONS = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(names.METRICS_PORT),
    "prometheus.io/path": "/metrics",
}
"""How a Prometheus without its operator finds the trainers; a pool's template may say otherwise."""


def config_map_name(run: Run, pools: Sequence[Pool] | None = None) -> str:
    """Return the name of the attempt's ConfigMap as it was when the run had these pools; None for those it has now."""
    named = [pool.name for pool in (run.pools if pools is None else pools)]
    return names.config_map_name(run=run.name, uid=run.uid, attempt=run.attempt, pools=named)


def build_config_map(run: Run, name: str | None = None) -> Manifest:
    """Return the attempt's ConfigMap: the manifest without the pods' templates, and the prefix. It holds no secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **_metadata(run, name or config_map_name(run)),
            "labels": _labels(run),
        },
        "immutable": True,
        "data": {MANIFEST_FILE: _trainer_manifest(run), PREFIX_FILE: run.prefix},
    }


def build_job(run: Run, pool: Pool) -> Manifest:
    """Return a pool's Job. Under a Kueue queue it is born suspended: Kueue alone decides when it starts."""
    spec = _spec(run)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **_metadata(run, names.job_name(run=run.name, uid=run.uid, attempt=spec.attempt, pool=pool.name)),
            "labels": _pool_labels(run, pool) | _queue_labels(run),
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": pool.replicas,
            "parallelism": pool.replicas,
            "backoffLimitPerIndex": spec.restarts_per_node,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _failure_rules()},
            "suspend": bool(run.queue),
            "template": build_pod_template(run, pool),
        },
    }


def build_pod_template(run: Run, pool: Pool) -> Manifest:
    """Return the pool's pod template with the user's patch merged into it."""
    patch = pool.template
    where = f"nodes[{pool.name}].template"
    _check_patch(patch, where)
    base = _base_template(run, pool)
    template = merged(base, patch, where)
    check_template(template, base, where)
    template["metadata"]["labels"] |= _pool_labels(run, pool)
    return template


def _spec(run: Run) -> Spec:
    assert run.spec is not None, "children are built for valid specs alone"
    return run.spec


def _metadata(run: Run, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": run.namespace,
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": run.name,
                "uid": run.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _labels(run: Run) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "gradientmail",
        "app.kubernetes.io/component": "trainer",
        "app.kubernetes.io/instance": run.name,
        "app.kubernetes.io/managed-by": names.CONTROLLER,
        names.RUN_LABEL: run.name,
        names.RUN_UID_LABEL: run.uid,
        names.ATTEMPT_LABEL: str(run.attempt),
    }


def _pool_labels(run: Run, pool: Pool) -> dict[str, str]:
    return _labels(run) | {names.POOL_LABEL: pool.name}


def _queue_labels(run: Run) -> dict[str, str]:
    wanted = (names.QUEUE_LABEL, names.PRIORITY_LABEL)
    return {label: run.labels[label] for label in wanted if run.labels.get(label)}


def _failure_rules() -> list[Manifest]:
    return [
        {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": names.CONTAINER,
                "operator": "In",
                "values": [int(Exit.CONFIGURATION)],
            },
        },
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _trainer_manifest(run: Run) -> str:
    spec = _spec(run).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for pool in spec["nodes"]:
        pool.pop("template", None)
    manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": run.name, "namespace": run.namespace},
        "spec": spec,
    }
    return dump(manifest)


def _base_template(run: Run, pool: Pool) -> Manifest:
    return {
        "metadata": {
            "labels": _pool_labels(run, pool),
            "annotations": {"kubectl.kubernetes.io/default-container": names.CONTAINER, **SCRAPE_ANNOTATIONS},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": POD_GRACE_SECONDS,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(run, pool)],
            "volumes": [
                {"name": "run", "configMap": {"name": config_map_name(run)}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            ],
            **_placement(run, pool),
        },
    }


def _container(run: Run, pool: Pool) -> Manifest:
    trainer = _spec(run).trainer
    container: Manifest = {
        "name": names.CONTAINER,
        "image": trainer.image,
        "command": ["gradientmail"],
        "args": ["train", f"{MOUNT_PATH}/{MANIFEST_FILE}"],
        "env": _environment(run, pool),
        "ports": [{"name": "metrics", "containerPort": names.METRICS_PORT}],
        "startupProbe": _probe(period=5, failures=60),
        "livenessProbe": _probe(period=20, failures=6),
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": MOUNT_PATH, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a folder of the pod's own
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - as above
        ],
    }
    if trainer.image_pull_policy:
        container["imagePullPolicy"] = trainer.image_pull_policy
    if pool.gpus:
        container["resources"] = {"limits": {GPU: pool.gpus}}
    secret = _secret(run)
    if secret:
        container["envFrom"] = [{"secretRef": {"name": secret}}]
    return container


def _secret(run: Run) -> str | None:
    mailbox = _spec(run).mailbox
    return mailbox.secret_name if mailbox else None


def _environment(run: Run, pool: Pool) -> list[Manifest]:
    return [
        # First, for the kubelet expands references to earlier entries alone.
        _from_field("JOB_COMPLETION_INDEX", f"metadata.labels['{names.INDEX_LABEL}']"),
        {"name": "GRADIENTMAIL_NODE", "value": f"{pool.name}-$(JOB_COMPLETION_INDEX)"},
        _from_field("GRADIENTMAIL_LEARNER", "metadata.name"),
        {"name": "GRADIENTMAIL_MAILBOX", "value": run.prefix},
        _from_field("GRADIENTMAIL_NAMESPACE", "metadata.namespace"),
        {"name": "GRADIENTMAIL_METRICS_PORT", "value": str(names.METRICS_PORT)},
        {"name": "GRADIENTMAIL_LOG_FORMAT", "value": "json"},
        {"name": "GRADIENTMAIL_TERMINATION_MESSAGE", "value": TERMINATION_LOG},
        {"name": "GRADIENTMAIL_GRACE_SECONDS", "value": str(max(1, _pod_grace(pool) - LAST_WORDS_SECONDS))},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the pod's only writable folder
    ]


def _pod_grace(pool: Pool) -> int:
    spec = pool.template.get("spec")
    asked = spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
    return min(asked, MOST_GRACE_SECONDS) if isinstance(asked, int) else POD_GRACE_SECONDS


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(*, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": "/livez", "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _placement(run: Run, pool: Pool) -> Manifest:
    nodes_of_the_run = {"matchLabels": {names.RUN_UID_LABEL: run.uid, names.ATTEMPT_LABEL: str(run.attempt)}}
    placement: Manifest = {}
    if pool.gpus:
        placement["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if pool.placement == "OnePerHost":
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": nodes_of_the_run}
        placement["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    else:
        placement["topologySpreadConstraints"] = [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": nodes_of_the_run,
            }
        ]
    return placement


def _check_patch(patch: Manifest, where: str) -> None:
    unknown = sorted(patch.keys() - {"metadata", "spec", "$patch"})
    if unknown:
        raise TemplateError(f"{where} has {unknown[0]!r}: a template is a part of a pod, with metadata and spec")
