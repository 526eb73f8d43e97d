"""Every mistake a person or a cluster can make ends in a condition with words to act on. All runs start together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.cluster.harness.api import JOBS, POLICIES, POLICY_BINDINGS, QUOTAS, Api, ApiError, Object
from tests.cluster.harness.controller import Controller
from tests.cluster.harness.manifests import (
    ending,
    holding,
    pool_with,
    queue_pool,
    run_manifest,
    scripted_pool,
    training_pool,
)
from tests.cluster.harness.namespaces import Namespace, Namespaces, give_quota
from tests.cluster.harness.runs import Run, condition
from tests.cluster.harness.waiting import until

WAIT_SECONDS = 75.0
SOON = {"startDeadlineSeconds": 45}
TEN = {"steps": 10, "batch": 1, "lanes": 1, "unitSteps": 1}
NODE_FAILED = ("ConfigurationError", "NodesFailed", "TooManyUnitsLost")
POLICY = "gradientmail-test-no-jobs"


@dataclass(frozen=True)
class Mistake:
    """A run that cannot go well, and what its status must say: all of `words` in the condition's message."""

    name: str
    kind: str
    reason: str
    words: tuple[str, ...]
    pools: Callable[[Namespace], list[Object]] = lambda _: [holding()]
    spec: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Api, str], object] = lambda _, __: None


def _deny_jobs(api: Api, namespace: str) -> None:
    """An admission policy of the cluster's owner: no Job without a cost centre."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    policy = {
        "metadata": {"name": POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "a Job needs the label cost-centre"}],
        },
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": POLICY, "validationActions": ["Deny"], "matchResources": here}
    api.create(POLICIES, None, policy)
    api.create(POLICY_BINDINGS, None, {"metadata": {"name": POLICY}, "spec": binding})
    until(lambda: _is_denied(api, namespace), "the policy to be in force", 30)


def _is_denied(api: Api, namespace: str) -> bool:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    job = {"metadata": {"generateName": "a-"}, "spec": {"template": {"spec": pod}}}
    try:
        api.create(JOBS, namespace, job, dryRun="All")
    except ApiError as error:
        return "cost-centre" in str(error)
    return False


def _with_spec(**spec: Any) -> Callable[[Namespace], list[Object]]:
    return lambda _: [pool_with(holding(), {"spec": spec})]


def _trainers(namespace: Namespace) -> list[Object]:
    return [namespace.training(training_pool())]


MISTAKES = [
    Mistake(
        "an image that does not exist",
        "Stalled",
        "ImagePullBackOff",
        ("node a-0", "registry.invalid/trainer:none"),
        spec={"trainer": {"image": "registry.invalid/trainer:none", "imagePullPolicy": "IfNotPresent"}},
    ),
    Mistake(
        "a start deadline that passes, and why",
        "Failed",
        "StartDeadlineExceeded",
        ("no node has started within 45 s", 'secret "forgotten" not found'),
        spec={"mailbox": {"secretName": "forgotten"}, **SOON},
    ),
    Mistake(
        "a secret that does not exist",
        "Stalled",
        "CreateContainerConfigError",
        ("node a-0", 'secret "forgotten" not found'),
        spec={"mailbox": {"secretName": "forgotten"}},
    ),
    Mistake(
        "more GPUs than any node has",
        "Stalled",
        "Unschedulable",
        ("node a-0", "Insufficient nvidia.com/gpu"),
        pools=lambda _: [holding(gpus=64)],
    ),
    Mistake(
        "a quota that has no room for pods",
        "Stalled",
        "PodsRefused",
        ("pool a", "exceeded quota: small", "pods=1"),
        prepare=partial(give_quota, {"pods": "0"}),
    ),
    Mistake(
        "a quota that has no room for Jobs",
        "Stalled",
        "Refused",
        ("exceeded quota: small", "count/jobs.batch"),
        prepare=partial(give_quota, {"count/jobs.batch": "0"}),
    ),
    Mistake(
        "an admission policy against the Job",
        "Stalled",
        "Refused",
        ("a Job needs the label cost-centre",),
        prepare=_deny_jobs,
    ),
    Mistake(
        "a template that Pod Security forbids",
        "Stalled",
        "PodsRefused",
        ("pool a", 'violates PodSecurity "restricted:latest"', "host namespaces"),
        pools=_with_spec(hostNetwork=True),
    ),
    Mistake(
        "a template that is no pod",
        "Stalled",
        "Refused",
        ("tolerations[0].operator", "Sometimes"),
        pools=_with_spec(tolerations=[{"key": "a", "operator": "Sometimes"}]),
    ),
    Mistake(
        "a template without the trainer",
        "Failed",
        "InvalidTemplate",
        ("nodes[a].template removes the container 'trainer'",),
        pools=lambda _: [
            {"name": "a", "template": {"spec": {"containers": [{"name": "trainer", "$patch": "delete"}]}}}
        ],
    ),
    Mistake(
        "a bucket that does not exist",
        "Failed",
        "ConfigurationError",
        ("node a-0", "nowhere"),
        pools=_trainers,
        spec={"mailbox": {"url": "s3://nowhere/runs"}},
    ),
    Mistake(
        "a task that does not exist",
        "Failed",
        "ConfigurationError",
        ("node a-0", "no_such_task"),
        pools=_trainers,
        spec={"trainer": {"task": "no_such_task:task"}},
    ),
    Mistake(
        "a task that raises",
        "Failed",
        "NodesFailed",
        ("every node has failed more often than restartsPerNode allows", "a-0", "the learning rate is upside down"),
        pools=_trainers,
        spec={"trainer": {"task": "tests.cluster.nodes.raising_task:task"}, "restartsPerNode": 0},
    ),
    Mistake(
        "more memory than the limit",
        "Failed",
        "NodesFailed",
        ("a-0", "OOMKilled", "resources.limits.memory"),
        pools=lambda _: [
            pool_with(
                scripted_pool(told={"memory": 512, "seconds": 3600}),
                {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"memory": "64Mi"}}}]}},
            )
        ],
        spec={"restartsPerNode": 0},
    ),
    Mistake(
        "an end of every node without a word",
        "Failed",
        "NodesFailed",
        ("a-0", "exit code 7"),
        pools=lambda _: [scripted_pool(told={"exit": 7, "silent": True})],
        spec={"restartsPerNode": 0},
    ),
    Mistake(
        "more lost units than allowed",
        "Failed",
        "TooManyUnitsLost",
        ("3 of 10 units are lost", "maxLostUnits (2)"),
        pools=lambda _: [holding("b"), scripted_pool(told={"exit": 1, "claimed": 4, "consumed": 1})],
        spec={"data": TEN, "maxLostUnits": 2, "restartsPerNode": 0},
    ),
    Mistake(
        "a run that takes too long",
        "Failed",
        "ActiveDeadlineExceeded",
        ("the run has taken longer than 5 s",),
        spec={"activeDeadlineSeconds": 5},
    ),
]


@pytest.fixture(scope="module")
def started(shared_namespaces: Namespaces, controller: Controller) -> Mapping[str, Run]:
    """All the runs, started together, each in a namespace of its own."""
    return {mistake.name: _start(mistake, shared_namespaces) for mistake in MISTAKES}


def _start(mistake: Mistake, namespaces: Namespaces) -> Run:
    namespace = namespaces.create(mistake.name)
    mistake.prepare(namespace.api, namespace.name)
    return namespace.apply(run_manifest("mistake", mistake.pools(namespace), **mistake.spec))


@pytest.fixture(scope="module", autouse=True)
def no_policy_is_left(controller: Controller) -> Any:
    yield
    controller.api.delete(POLICY_BINDINGS, None, POLICY)
    controller.api.delete(POLICIES, None, POLICY)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_told_in_words_to_act_on(started: Mapping[str, Run], mistake: Mistake) -> None:
    run = started[mistake.name]
    run.wait(partial(_tells, mistake), f"{mistake.kind} ({mistake.reason}) in words", WAIT_SECONDS)
    status = run.status
    if mistake.kind == "Failed":
        assert status["phase"] == "Failed"
        assert condition(status, "Complete") == {}
        until(lambda: run.running_pods() == [], "all nodes to stop", 60, run.pods)
        if mistake.reason in NODE_FAILED:
            until(lambda: _phases(run) == ["Failed"], "the failed pod, whose log can be read", 20, lambda: _phases(run))
            assert next(node for node in run.status["nodes"] if node["pool"] == "a")["phase"] == "Failed"
    else:
        assert status["phase"] == "Pending"
    run.wait_event(mistake.reason)


def _tells(mistake: Mistake, status: Mapping[str, Any]) -> bool:
    found = condition(status, mistake.kind)
    told = found["status"] == "True" and found["reason"] == mistake.reason
    return told and all(words in found["message"] for words in mistake.words)


def _phases(run: Run) -> list[str]:
    return [pod["status"]["phase"] for pod in run.pods("a")]


def test_what_was_refused_starts_once_the_cause_is_gone(namespace: Namespace) -> None:
    give_quota({"pods": "0"}, namespace.api, namespace.name)
    data = {"steps": 1, "batch": 1, "lanes": 1, "unitSteps": 1}
    run = namespace.apply(run_manifest("patient", [ending(units=1)], data=data))
    run.wait_condition("Stalled", 45, "PodsRefused")
    namespace.api.delete(QUOTAS, namespace.name, "small")
    run.wait_phase("Succeeded", 75)
    assert run.condition("Stalled")["status"] == "False"


def test_a_finished_run_goes_after_its_time_to_live_and_its_mailbox_stays(namespace: Namespace) -> None:
    data = {"steps": 4, "batch": 1, "lanes": 1, "unitSteps": 1}
    run = namespace.apply(run_manifest("brief", [queue_pool(seconds=0)], data=data, ttlSecondsAfterFinished=8))
    prefix = run.wait_phase("Succeeded", 60)["mailboxPrefix"]
    until(namespace.children_are_gone, "the run and its children to go", 45)
    assert namespace.kubectl("--namespace", namespace.name, "get", "grun", "--output", "name") == ""
    assert len(namespace.store.names(f"{prefix}/consumed/")) == 4
