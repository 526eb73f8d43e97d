"""A run's status from what exists: phases, conditions, nodes and counts, as literal expectations."""

from __future__ import annotations

from typing import Any

import pytest

from gradientmail.run_status import RunStatus
from gradientrun.observed import Counts, Observed, Refusal, Warned
from gradientrun.runs import Manifest, Run
from gradientrun.status import derive_status
from gradientrun.verdict import condition
from tests.unit.controller.manifests import (
    PREFIX,
    a_run,
    at,
    ended,
    finished,
    job_manifest,
    last_words,
    observed,
    pod_manifest,
    running,
    scheduled,
    text,
    unschedulable,
    waiting,
)

A0, A1, S0 = "first-fast-0-aaaaa", "first-fast-1-aaaaa", "first-slow-0-aaaaa"


def status_of(run: Run, *children: Manifest, seconds: float = 10, **more: Any) -> dict[str, Any]:
    """The status, checked against the models that the CRD is made from."""
    status = derive_status(run, observed(run, *children, **more), at(seconds))
    RunStatus.model_validate(status)
    return status


def verdict(status: Manifest) -> tuple[str, str, str]:
    """Phase, reason and message, as the condition that goes with the phase tells them."""
    kind = {"Succeeded": "Complete", "Failed": "Failed", "Suspended": "Suspended"}.get(status["phase"], "Running")
    told = condition(status, kind)
    return status["phase"], told["reason"], told["message"]


def stalled(status: Manifest) -> tuple[str, str] | None:
    told = condition(status, "Stalled")
    return (told["reason"], told["message"]) if told["status"] == "True" else None


def begun(**spec: Any) -> Run:
    """A run whose first status was written when it was accepted."""
    run = a_run(**spec)
    return a_run(status=derive_status(run, Observed(), at(0)), **spec)


def test_the_message_of_a_killed_learner_is_newer_than_what_was_scraped() -> None:
    before = derive_status(
        a_run(), observed(a_run(), pod_manifest(**running()), counts={"first-fast-0-aaaaa": Counts(2, 1)}), at(10)
    )
    run = a_run(status=before)
    killed = pod_manifest(**ended(137, last_words(4, 2, phase="training"), reason="OOMKilled"))
    status = derive_status(run, observed(run, killed), at(70))
    assert (status["units"]["claimed"], status["units"]["consumed"], status["units"]["lost"]) == (4, 2, 2)
    silent = pod_manifest(**ended(139, last_words(4, 2, phase="training")))
    words = derive_status(run, observed(run, silent), at(70))["nodes"][0]["message"]
    assert words == "it ended without a word: see the end of its log (exit code 139)"


def test_the_first_status_records_the_prefix_before_anything_exists() -> None:
    assert status_of(a_run(), seconds=0) == {
        "observedGeneration": 1,
        "attempt": 1,
        "phase": "Pending",
        "mailboxPrefix": PREFIX,
        "startTime": text(0),
        "units": {"total": 8, "claimed": 0, "consumed": 0, "lost": 0, "percent": 0},
        "nodesRunning": 0,
        "nodesWanted": 3,
        "nodes": [
            {"name": "fast-0", "pool": "fast", "phase": "Pending", "claimed": 0, "consumed": 0, "restarts": 0},
            {"name": "fast-1", "pool": "fast", "phase": "Pending", "claimed": 0, "consumed": 0, "restarts": 0},
            {"name": "slow-0", "pool": "slow", "phase": "Pending", "claimed": 0, "consumed": 0, "restarts": 0},
        ],
        "pools": [
            {"name": "fast", "replicas": 2, "running": 0, "succeeded": 0, "failed": 0, "claimed": 0, "consumed": 0},
            {"name": "slow", "replicas": 1, "running": 0, "succeeded": 0, "failed": 0, "claimed": 0, "consumed": 0},
        ],
        "learners": [],
        "conditions": [
            {
                "type": "Running",
                "status": "False",
                "reason": "Starting",
                "message": "waiting for the first of 3 nodes to start",
                "lastTransitionTime": text(0),
                "observedGeneration": 1,
            },
            {
                "type": "Stalled",
                "status": "False",
                "reason": "AsExpected",
                "message": "nothing keeps a node from running",
                "lastTransitionTime": text(0),
                "observedGeneration": 1,
            },
        ],
    }


def test_running_nodes_with_their_counts() -> None:
    counts = {A0: Counts(claimed=3, consumed=2, step=27), S0: Counts(claimed=1, consumed=0, step=3)}
    children = (job_manifest(), pod_manifest(**running(5)), pod_manifest("slow-0", **running(5)))
    status = status_of(begun(), *children, seconds=25, counts=counts)
    assert verdict(status) == ("Running", "NodesRunning", "2 of 3 nodes running")
    assert status["units"] == {"total": 8, "claimed": 4, "consumed": 2, "lost": 0, "percent": 25}
    assert status["nodesRunning"] == 2
    assert status["estimatedRemainingSeconds"] == 60
    assert status["nodes"][0] == {
        "name": "fast-0", "pool": "fast", "pod": A0, "phase": "Running",
        "claimed": 3, "consumed": 2, "step": 27, "restarts": 0,
    }  # fmt: skip
    assert status["learners"] == [
        {"node": "fast-0", "pod": A0, "claimed": 3, "consumed": 2},
        {"node": "slow-0", "pod": S0, "claimed": 1, "consumed": 0},
    ]


def test_a_status_is_the_same_again_while_nothing_changes() -> None:
    counts = {A0: Counts(claimed=3, consumed=2, step=27)}
    children = (job_manifest(), pod_manifest(**running(5)))
    once = status_of(begun(), *children, seconds=25, counts=counts)
    assert status_of(a_run(status=once), *children, seconds=300, counts=counts) == once
    assert status_of(a_run(status=once), *children, seconds=300) == once


def test_all_nodes_done() -> None:
    children = (
        job_manifest(**finished("Complete"), completedIndexes="0,1"),
        job_manifest("slow", replicas=1, **finished("Complete"), completedIndexes="0"),
        pod_manifest(**ended(0, last_words(4, 4))),
        pod_manifest("fast-1", **ended(0, last_words(3, 3))),
        pod_manifest("slow-0", **ended(0, last_words(1, 1))),
    )
    status = status_of(begun(), *children, seconds=90)
    assert verdict(status) == ("Succeeded", "AllUnitsDone", "all 8 units are consumed")
    assert status["units"] == {"total": 8, "claimed": 8, "consumed": 8, "lost": 0, "percent": 100}
    assert status["completionTime"] == text(90)
    assert "estimatedRemainingSeconds" not in status
    assert condition(status, "Running")["status"] == "False"
    assert [node["phase"] for node in status["nodes"]] == ["Succeeded", "Succeeded", "Succeeded"]


def test_pools_agree_with_their_nodes_before_their_jobs_know() -> None:
    children = (job_manifest(), pod_manifest(**ended(0, last_words(4, 4))), pod_manifest("fast-1", **ended(0, "")))
    status = status_of(begun(), *children)
    assert [node["phase"] for node in status["nodes"]] == ["Succeeded", "Succeeded", "Pending"]
    assert [pool["succeeded"] for pool in status["pools"]] == [2, 0]
    known = job_manifest(**finished("Complete"), completedIndexes="0,1")
    assert status_of(a_run(status=status), known, *children[1:], seconds=12) == status


def test_a_run_ends_without_the_nodes_that_never_came() -> None:
    children = (pod_manifest(**ended(0, last_words(8, 8))), pod_manifest("slow-0", **unschedulable("0/3 nodes")))
    assert verdict(status_of(begun(), *children))[:2] == ("Succeeded", "AllUnitsDone")


def test_units_that_a_node_may_hold_whose_host_is_slow_to_report_are_waited_for() -> None:
    done = pod_manifest(**ended(0, last_words(6, 6)))
    creating = pod_manifest("slow-0", **waiting("ContainerCreating", ""))
    early = status_of(begun(), done, creating)
    assert verdict(early) == ("Pending", "WaitingForNodes", "none of 3 nodes runs at present")
    assert early["units"] == {"total": 8, "claimed": 8, "consumed": 6, "lost": 0, "percent": 75}
    later = pod_manifest("slow-0", **ended(0, last_words(2, 2)))
    assert verdict(status_of(a_run(status=early), done, later))[:2] == ("Succeeded", "AllUnitsDone")


def test_a_node_that_cannot_hold_anything_is_not_waited_for() -> None:
    creating = pod_manifest("slow-0", **waiting("ContainerCreating", ""))
    assert verdict(status_of(begun(), pod_manifest(**ended(0, last_words(8, 8))), creating))[0] == "Succeeded"
    hopeless = pod_manifest("slow-0", **waiting("ErrImagePull", "no such image"))
    status = status_of(begun(maxLostUnits=2), pod_manifest(**ended(0, last_words(6, 6))), hopeless)
    assert verdict(status)[0] == "Succeeded"
    assert status["units"]["lost"] == 2


def test_a_run_goes_on_while_one_node_still_trains() -> None:
    children = (pod_manifest(**ended(0, last_words(7, 7))), pod_manifest("slow-0", **running()))
    status = status_of(begun(), *children, counts={S0: Counts(claimed=1, consumed=0)})
    assert verdict(status) == ("Running", "NodesRunning", "1 of 3 nodes running")
    assert status["units"] == {"total": 8, "claimed": 8, "consumed": 7, "lost": 0, "percent": 87}


def test_lost_units_within_the_limit_do_not_fail_the_run() -> None:
    children = (
        pod_manifest(**ended(0, last_words(6, 6))),
        pod_manifest("slow-0", **ended(137, reason="OOMKilled")),
        job_manifest("slow", replicas=1, failedIndexes="0"),
    )
    status = status_of(begun(), *children)
    assert verdict(status) == (
        "Succeeded", "AllUnitsDone", "6 of 8 units are consumed, 2 were lost with the nodes that held them",
    )  # fmt: skip
    assert status["units"]["lost"] == 2


def test_an_end_stands_whatever_happens_to_pods_and_jobs_later() -> None:
    run = begun()
    done = status_of(run, pod_manifest(**ended(0, last_words(8, 8))), job_manifest(completedIndexes="0"), seconds=90)
    later = status_of(a_run(status=done), seconds=9000)
    assert verdict(later) == ("Succeeded", "AllUnitsDone", "all 8 units are consumed")
    assert later["completionTime"] == text(90)
    assert later["units"] == done["units"]
    assert later["nodes"] == done["nodes"]


def test_a_node_that_was_stopped_with_the_run_says_so_and_one_that_never_came_does_not() -> None:
    counts = {A0: Counts(claimed=3, consumed=1)}
    run = begun(activeDeadlineSeconds=100)
    failed = status_of(run, pod_manifest(**running()), seconds=100, counts=counts)
    nodes = status_of(a_run(status=failed), seconds=130)["nodes"]
    assert [(node["phase"], node.get("message")) for node in nodes] == [
        ("Failed", "stopped with the run"), ("Pending", None), ("Pending", None),
    ]  # fmt: skip


def test_a_node_that_has_ended_the_run_has_failed_and_is_not_waited_for() -> None:
    failed = status_of(begun(), pod_manifest(**ended(2, last_words(0, 0, message="no such bucket"))), job_manifest())
    assert failed["nodes"][0]["phase"] == "Failed"
    assert failed["nodes"][0]["message"] == "no such bucket (exit code 2)"
    assert status_of(begun(), pod_manifest(**ended(1)), job_manifest())["nodes"][0]["phase"] == "Pending"


def test_counts_that_arrive_after_the_end_are_still_taken() -> None:
    run = begun(activeDeadlineSeconds=100)
    counts = {A0: Counts(claimed=3, consumed=1)}
    failed = status_of(run, pod_manifest(**running()), seconds=100, counts=counts)
    assert verdict(failed) == ("Failed", "ActiveDeadlineExceeded", "the run has taken longer than 100 s")
    pod = pod_manifest(**ended(143, last_words(3, 2, phase="stopped")))
    after = status_of(a_run(status=failed), pod, seconds=130)
    assert after["units"] == {"total": 8, "claimed": 3, "consumed": 2, "lost": 1, "percent": 25}
    assert after["completionTime"] == text(100)


def test_too_many_lost_units_fail_the_run() -> None:
    children = (
        pod_manifest(**ended(137, last_words(5, 0), reason="OOMKilled")),
        pod_manifest("slow-0", **running()),
    )
    assert verdict(status_of(begun(), *children)) == (
        "Failed",
        "TooManyUnitsLost",
        "5 of 8 units are lost with the nodes that had claimed them, more than maxLostUnits (50%) allows",
    )


def test_a_configuration_error_fails_the_run_at_once_in_the_nodes_words() -> None:
    words = last_words(0, 0, phase="failed", message="the bucket 'bukcet' does not exist: create it")
    children = (pod_manifest(**ended(2, words)), pod_manifest("slow-0", **running()))
    assert verdict(status_of(begun(), *children)) == (
        "Failed", "ConfigurationError", "node fast-0: the bucket 'bukcet' does not exist: create it (exit code 2)",
    )  # fmt: skip


def test_a_configuration_error_is_known_from_the_job_when_the_pod_is_gone() -> None:
    job = job_manifest(**finished("Failed", "PodFailurePolicy", "Container trainer for pod x failed with exit code 2"))
    assert verdict(status_of(begun(), job)) == (
        "Failed", "ConfigurationError", "pool fast: Container trainer for pod x failed with exit code 2",
    )  # fmt: skip


def test_a_run_whose_nodes_are_all_given_up_fails_with_the_last_reason() -> None:
    children = (
        job_manifest(**finished("Failed", "FailedIndexes", "Job has failed indexes"), failedIndexes="0,1"),
        job_manifest("slow", replicas=1, **finished("Failed", "FailedIndexes", "…"), failedIndexes="0"),
        pod_manifest(**ended(1, "Traceback\nRuntimeError: boom"), created=50),
    )
    status = status_of(begun(), *children)
    assert verdict(status) == (
        "Failed",
        "NodesFailed",
        "every node has failed more often than restartsPerNode allows; the last, fast-0: "
        "RuntimeError: boom (exit code 1)",
    )
    assert [node["phase"] for node in status["nodes"]] == ["Failed", "Failed", "Failed"]


def test_a_run_goes_on_when_only_one_pool_is_given_up() -> None:
    children = (
        job_manifest("slow", replicas=1, **finished("Failed", "FailedIndexes", "…"), failedIndexes="0"),
        job_manifest(),
        pod_manifest(**running()),
    )
    assert verdict(status_of(begun(), *children))[0] == "Running"


@pytest.mark.parametrize(
    ("seconds", "children", "expected"),
    [
        (899, [], ("Pending", "Starting", "waiting for the first of 3 nodes to start")),
        (900, [], ("Failed", "StartDeadlineExceeded", "no node has started within 900 s")),
        (9000, [pod_manifest(**running(5))], ("Running", "NodesRunning", "1 of 3 nodes running")),
        (9000, [pod_manifest(**ended(1))], ("Pending", "WaitingForNodes", "none of 3 nodes runs at present")),
    ],
)
def test_the_start_deadline(seconds: float, children: list[Manifest], expected: tuple[str, str, str]) -> None:
    assert verdict(status_of(begun(), *children, seconds=seconds)) == expected


def test_the_start_deadline_tells_what_kept_the_nodes() -> None:
    pod = pod_manifest(**unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."))
    before = status_of(begun(), pod)
    assert verdict(status_of(a_run(status=before), pod, seconds=900))[2] == (
        "no node has started within 900 s: node fast-0: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )


def test_without_a_start_deadline_a_run_waits() -> None:
    assert verdict(status_of(begun(startDeadlineSeconds=None), seconds=1e6))[0] == "Pending"


def test_suspending_and_suspended_and_resumed() -> None:
    was = status_of(begun(), pod_manifest(**running()))
    stopping = status_of(a_run(status=was, suspend=True), pod_manifest(deleted=100, **running()), seconds=70)
    assert verdict(stopping) == ("Running", "Suspending", "1 node still stopping: spec.suspend is set")
    suspended = status_of(a_run(status=stopping, suspend=True), seconds=80)
    assert verdict(suspended) == (
        "Suspended", "Suspended", "spec.suspend is set: no node runs until it is false again",
    )  # fmt: skip
    resumed = status_of(a_run(status=suspended), seconds=5000)
    assert verdict(resumed) == ("Pending", "WaitingForNodes", "none of 3 nodes runs at present")
    assert condition(resumed, "Suspended") == {
        "type": "Suspended",
        "status": "False",
        "reason": "Resumed",
        "message": "none of 3 nodes runs at present",
        "lastTransitionTime": text(5000),
        "observedGeneration": 1,
    }


def test_the_active_deadline_begins_anew_on_resuming_and_stands_still_while_suspended() -> None:
    spec: dict[str, Any] = {"activeDeadlineSeconds": 100}
    suspended = status_of(begun(**spec, suspend=True), seconds=50)
    assert verdict(status_of(a_run(status=suspended, **spec, suspend=True), seconds=500))[0] == "Suspended"
    resumed = status_of(a_run(status=suspended, **spec), seconds=500)
    assert verdict(status_of(a_run(status=resumed, **spec), seconds=599))[0] == "Pending"
    assert verdict(status_of(a_run(status=resumed, **spec), seconds=600))[1] == "ActiveDeadlineExceeded"


def test_a_run_suspended_from_the_start_never_misses_its_start_deadline() -> None:
    suspended = status_of(begun(suspend=True), seconds=5000)
    assert verdict(suspended)[:2] == ("Suspended", "SuspendedBeforeStart")
    assert verdict(status_of(a_run(status=suspended), seconds=5001))[:2] == ("Pending", "Starting")


def test_waiting_in_a_queue_is_not_being_late() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    jobs = (job_manifest(suspend=True, startTime=None), job_manifest("slow", suspend=True, startTime=None))
    queued = status_of(begun(labels=labels), *jobs, seconds=5000)
    assert verdict(queued) == ("Pending", "Queued", "waiting for Kueue to admit the run in queue 'gpus'")
    admitted = (job_manifest(startTime=text(5000)), job_manifest("slow", suspend=True, startTime=None))
    assert verdict(status_of(a_run(status=queued, labels=labels), *admitted, seconds=5899))[0] == "Pending"
    assert (
        verdict(status_of(a_run(status=queued, labels=labels), *admitted, seconds=5900))[1] == "StartDeadlineExceeded"
    )


def test_a_new_attempt_starts_a_fresh_status_and_waits_for_the_old_nodes() -> None:
    before = status_of(begun(), pod_manifest(**running()), counts={A0: Counts(3, 2)})
    status = status_of(
        a_run(status=before, attempt=2), job_manifest(), pod_manifest(deleted=130, **running()), seconds=70
    )
    assert verdict(status) == (
        "Pending", "StoppingEarlierAttempt", "nodes of an earlier attempt are still stopping",
    )  # fmt: skip
    assert status["attempt"] == 2
    assert status["mailboxPrefix"] == PREFIX.removesuffix("-1") + "-2"
    assert status["startTime"] == text(70)
    assert status["units"] == {"total": 8, "claimed": 0, "consumed": 0, "lost": 0, "percent": 0}
    assert status["learners"] == []


def test_a_host_that_does_not_answer_and_holds_up_a_new_attempt_is_told() -> None:
    pod = pod_manifest(deleted=130, **running())
    waiting_for = "a node of an earlier attempt, fast-0, may still run on a host that does not answer: "
    to_do = f"once the host is certainly off, delete its Node, or the pod {A0} with --force"
    assert verdict(status_of(begun(attempt=2), pod, seconds=161)) == (
        "Pending", "StoppingEarlierAttempt", waiting_for + to_do,
    )  # fmt: skip
    assert verdict(status_of(begun(attempt=2), pod, seconds=900)) == (
        "Failed", "StartDeadlineExceeded", f"no node has started within 900 s: {waiting_for}{to_do}",
    )  # fmt: skip


def test_an_attempt_after_an_end_is_not_ended() -> None:
    done = status_of(begun(), pod_manifest(**ended(0, last_words(8, 8))))
    assert verdict(status_of(a_run(status=done, attempt=2), seconds=70))[:2] == ("Pending", "Starting")


def test_children_of_an_earlier_run_of_the_same_name_do_not_count() -> None:
    pod, job = pod_manifest(**running()), job_manifest()
    pod["metadata"]["labels"]["gradientmail.io/run-uid"] = "another"
    job["metadata"]["ownerReferences"] = [{"uid": "another"}]
    assert verdict(status_of(begun(), pod, job))[1] == "Starting"


def test_a_copy_of_a_pod_for_debugging_does_not_count() -> None:
    copy = pod_manifest("fast-0", "copy", created=9, **running())
    copy["metadata"]["ownerReferences"] = []
    assert status_of(begun(), pod_manifest(**running()), copy)["nodesRunning"] == 1


def test_a_spec_that_this_version_cannot_read_is_no_lasting_end() -> None:
    broken = status_of(a_run(data={"steps": 40, "batch": 64, "lanes": 5}))
    assert verdict(broken) == (
        "Failed", "InvalidSpec",
        "spec.data: lanes is 5 and batch is 64: the lanes must divide the batch evenly",
    )  # fmt: skip
    assert verdict(status_of(a_run(status=broken)))[0] == "Pending"


def test_a_template_that_cannot_be_merged_fails_the_run() -> None:
    run = a_run(nodes=[{"name": "fast", "template": {"spec": {"volumes": 3}}}])
    assert verdict(status_of(run)) == (
        "Failed", "InvalidTemplate", "nodes[fast].template.spec.volumes is 3: a list is expected here",
    )  # fmt: skip


BACKOFF = 'Back-off pulling image "x": ErrImagePull: failed to resolve reference "x": not found'
PULL = 'failed to resolve reference "x": not found'


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (waiting("ImagePullBackOff", BACKOFF), ("ImagePullBackOff", f"node fast-0: {PULL}")),
        (waiting("ErrImagePull", PULL), ("ImagePullBackOff", f"node fast-0: {PULL}")),
        (waiting("CreateContainerConfigError", 'secret "bucket" not found'),
         ("CreateContainerConfigError", 'node fast-0: secret "bucket" not found')),
        (waiting("InvalidImageName", "", container="log"),
         ("InvalidImageName", "node fast-0: container log: InvalidImageName")),
        (unschedulable("0/3 nodes are available"), ("Unschedulable", "node fast-0: 0/3 nodes are available")),
        (waiting("ContainerCreating", ""), None),
        ({"phase": "Pending"}, None),
    ],
)  # fmt: skip
def test_a_node_that_cannot_start_is_told_in_the_kubelets_words(pod: Manifest, expected: Any) -> None:
    assert stalled(status_of(begun(), pod_manifest(**pod))) == expected


def test_the_kubelets_swing_between_two_words_for_one_thing_is_no_change() -> None:
    one = status_of(begun(), pod_manifest(**waiting("ErrImagePull", PULL)))
    other = status_of(a_run(status=one), pod_manifest(**waiting("ImagePullBackOff", BACKOFF)), seconds=30)
    assert other == one


def test_stalled_nodes_are_summed_up_and_told_beside_those_that_run() -> None:
    stuck = [pod_manifest(node, **unschedulable("0/3 nodes are available")) for node in ("fast-1", "slow-0")]
    status = status_of(begun(), pod_manifest(**running()), *stuck)
    assert verdict(status)[0] == "Running"
    assert stalled(status) == ("Unschedulable", "node fast-1 and 1 more: 0/3 nodes are available")
    assert status["nodes"][1]["message"] == "Unschedulable: 0/3 nodes are available"


QUOTA = 'Error creating: pods "first-fast-0-x" is forbidden: exceeded quota: gpus'


def test_pods_that_a_quota_or_an_admission_refuses_are_told_by_the_jobs_events() -> None:
    warnings = {"job-fast-1": Warned(QUOTA, at(8))}
    assert stalled(status_of(begun(), job_manifest(), warnings=warnings)) == ("PodsRefused", f"pool fast: {QUOTA}")


def test_a_warning_older_than_the_newest_pod_is_over() -> None:
    warnings = {"job-fast-1": Warned(QUOTA, at(8))}
    pod = pod_manifest(created=9, **running())
    assert stalled(status_of(begun(), job_manifest(), pod, warnings=warnings)) is None


def test_a_pod_that_does_not_start_is_told_by_its_events() -> None:
    warnings = {"pod-fast-0-aaaaa": Warned('MountVolume.SetUp failed: configmap "x" not found', at(30))}
    status = status_of(begun(), pod_manifest(**waiting("ContainerCreating", "")), warnings=warnings)
    assert stalled(status) == ("PodNotStarting", 'node fast-0: MountVolume.SetUp failed: configmap "x" not found')


def test_what_the_api_server_refuses_is_told_in_its_words() -> None:
    status = status_of(begun(), refusals=(Refusal("pool fast", "jobs.batch is forbidden: exceeded quota"),))
    assert stalled(status) == ("Refused", "pool fast: jobs.batch is forbidden: exceeded quota")


@pytest.mark.parametrize(("seconds", "expected"), [(119, False), (120, True)])
def test_a_container_that_outlives_the_trainer_is_told(seconds: float, expected: bool) -> None:
    pod = pod_manifest(**ended(0, last_words(1, 1), phase="Running", finished=60))
    told = stalled(status_of(begun(), pod, pod_manifest("slow-0", **running()), seconds=seconds))
    assert (told is not None) == expected


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (ended(137, reason="OOMKilled"),
         "OOMKilled: the node needed more memory than its limit; raise resources.limits.memory in its template"),
        (ended(1, last_words(1, 0, phase="failed", message="RuntimeError: boom")), "RuntimeError: boom (exit code 1)"),
        (ended(1, ""), "exit code 1"),
        (ended(1, '{"event":"step","message":"step 1"}\n{"event":"failed","message":"no room","time":1}'),
         "no room (exit code 1)"),
        (ended(1, '{"event":"step"}\n["message"]'), '["message"] (exit code 1)'),
        (ended(128, 'exec: "gradientmail": not found', reason="StartError"),
         'exec: "gradientmail": not found (StartError, exit code 128)'),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
         "Evicted: The node was low on resource: memory."),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
                                             "message": "preempting to accommodate a higher priority pod"}]},
         "preempting to accommodate a higher priority pod"),
    ],
)  # fmt: skip
def test_why_a_node_failed(pod: Manifest, message: str) -> None:
    status = status_of(begun(), pod_manifest(**pod), pod_manifest("slow-0", **running()))
    assert status["nodes"][0]["message"] == message


def test_restarts_are_counted_and_the_running_pod_is_named_with_the_last_failure() -> None:
    first = pod_manifest(created=2, **ended(1, last_words(2, 1, message="boom")))
    second = pod_manifest("fast-0", "bbbbb", created=40, failures=1, **running(45))
    status = status_of(begun(), first, second, counts={"first-fast-0-bbbbb": Counts(1, 1, step=9)})
    assert status["nodes"][0] == {
        "name": "fast-0", "pool": "fast", "pod": "first-fast-0-bbbbb", "phase": "Running",
        "claimed": 3, "consumed": 2, "step": 9, "restarts": 1, "message": "boom (exit code 1)",
    }  # fmt: skip
    assert status["units"]["lost"] == 1


def test_restarts_go_on_from_where_they_were_after_suspending() -> None:
    """Kubernetes forgets a node's failures with its pods."""

    def then(status: Manifest, suffix: str, failures: int, **state: Any) -> Manifest:
        pod = pod_manifest("fast-0", suffix, failures=failures, **state)
        return status_of(a_run(status=status), pod)

    failed_once = then(status_of(begun()), "bbbbb", 1, **running())
    suspended = status_of(a_run(status=failed_once, suspend=True), seconds=20)
    resumed = then(suspended, "ccccc", 0, **running())
    failed_again = then(resumed, "ddddd", 1, **running())
    for status, restarts in ((failed_once, 1), (suspended, 1), (resumed, 1), (failed_again, 2)):
        assert status["nodes"][0]["restarts"] == restarts
    assert then(failed_again, "ddddd", 1, **running()) == failed_again


def test_a_pod_on_a_dead_host_counts_as_gone_half_a_minute_after_its_deadline() -> None:
    pod = pod_manifest(deleted=100, **running())
    counts = {A0: Counts(2, 1)}
    assert status_of(begun(), pod, seconds=130, counts=counts)["nodesRunning"] == 1
    late = status_of(begun(), pod, seconds=131, counts=counts)
    assert late["nodesRunning"] == 0
    assert late["units"]["lost"] == 1
    assert late["nodes"][0]["message"] == "its host does not answer"


def test_a_large_run_lists_the_nodes_in_trouble_first_and_sums_up_all() -> None:
    run = begun(nodes=[{"name": "fast", "replicas": 200}])
    pods = [pod_manifest(f"fast-{index}", **running()) for index in range(199)]
    status = status_of(run, *pods, pod_manifest("fast-199", **unschedulable("no room")))
    assert len(status["nodes"]) == 50
    assert status["nodes"][0]["name"] == "fast-199"
    assert status["pools"][0]["running"] == 199


def test_nodes_removed_by_scaling_down_leave_their_counts_and_are_no_failures() -> None:
    was = status_of(begun(), pod_manifest("fast-1", **running()), counts={A1: Counts(2, 2)})
    run = a_run(status=was, nodes=[{"name": "fast", "replicas": 1}, {"name": "slow"}])
    status = status_of(run, pod_manifest(**running()))
    assert [node["name"] for node in status["nodes"]] == ["fast-0", "slow-0"]
    assert status["units"]["consumed"] == 2
    assert status["pools"][0]["failed"] == 0


def test_a_gated_pod_is_told() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}
    assert stalled(status_of(begun(), pod_manifest(phase="Pending", conditions=[gate]))) == (
        "Unschedulable", "node fast-0: Scheduling is blocked",
    )  # fmt: skip


def test_scheduled_pods_are_not_stalled() -> None:
    assert stalled(status_of(begun(), pod_manifest(phase="Pending", conditions=scheduled()))) is None


NONSENSE = (
    '{"learner":"l","node":"n","claimed":"x","consumed":1}',
    '{"learner":"l","node":"n","claimed":1e400,"consumed":1}',
    '{"learner":"l","node":"n","claimed":-3,"consumed":1}',
    '{"learner":"l","node":"n","claimed":10000001,"consumed":1}',
    '{"learner":"l","node":"n","claimed":true,"consumed":1}',
    '{"learner":"l","node":"n","claimed":2,"consumed":null}',
    '{"learner":"l","node":"n","claimed":2,"consumed":1,"step":-1}',
    '{"learner":"l","node":"n","claimed":2,"consumed":1,"step":1.5}',
    '{"learner":"l","node":"n","claimed":2,"consumed":1,"message":["x"]}',
    '{"learner":"l","node":"n","claimed":2,"consumed":1,"exchange":{"versions":3}}',
    "[" * 4000,
    "\x00\x1b[31m",
)


@pytest.mark.parametrize("message", NONSENSE)
@pytest.mark.parametrize("code", [0, 1])
def test_last_words_that_make_no_sense_leave_the_last_counts(message: str, code: int) -> None:
    was = status_of(begun(), pod_manifest(**running()), counts={A0: Counts(claimed=3, consumed=2, step=7)})
    now = status_of(a_run(status=was), pod_manifest(**ended(code, message)), pod_manifest("slow-0", **running()))
    assert now["learners"][0] == {"node": "fast-0", "pod": A0, "claimed": 3, "consumed": 2}
    assert now["nodes"][0]["step"] == 7


def test_half_a_character_is_written_as_the_api_server_gives_it_back() -> None:
    pod = pod_manifest(**ended(1, last_words(1, 1, message="no \ud800 room")))
    status = status_of(begun(), pod, pod_manifest("slow-0", **running()))
    assert status["nodes"][0]["message"] == "no ? room (exit code 1)"


def test_a_host_that_never_tells_whether_its_pod_has_started_does_not_hold_up_the_end() -> None:
    killed = pod_manifest("fast-1", **ended(137, "", reason="Error", finished=50))
    creating = pod_manifest("slow-0", **waiting("ContainerCreating", ""))
    children = (pod_manifest(**ended(0, last_words(6, 6), finished=60)), killed, creating)
    early = status_of(begun(), *children, seconds=61)
    assert verdict(early)[:2] == ("Pending", "WaitingForNodes")
    assert verdict(status_of(a_run(status=early), *children, seconds=180))[0] == "Pending"
    assert verdict(status_of(a_run(status=early), *children, seconds=182)) == (
        "Succeeded", "AllUnitsDone", "6 of 8 units are consumed, 2 were lost with the nodes that held them",
    )  # fmt: skip


def test_a_prefix_changed_by_hand_is_put_right() -> None:
    was = status_of(begun()) | {"mailboxPrefix": "s3://elsewhere"}
    assert status_of(a_run(status=was))["mailboxPrefix"] == PREFIX


def test_counts_emptied_by_hand_do_not_stop_the_controller() -> None:
    broken: dict[str, Any] = {"data": {"steps": 40, "batch": 64, "lanes": 5}}
    was = status_of(a_run(**broken)) | {"units": {"total": 0}}
    assert status_of(a_run(status=was, **broken))["units"]["percent"] == 0


def test_a_thousand_nodes_that_fail_again_and_again_leave_a_status_that_can_be_stored() -> None:
    spec: dict[str, Any] = {
        "nodes": [{"name": "fast", "replicas": 1000}],
        "data": {"steps": 4000, "batch": 512, "lanes": 64, "unitSteps": 20},
        "maxLostUnits": "100%",
    }
    failed = [
        pod_manifest(f"fast-{index}", f"{turn:05d}", created=turn, failures=turn, **ended(1, last_words(2, 1)))
        for index in range(1000)
        for turn in range(4)
    ]
    live = [pod_manifest(f"fast-{index}", "zzzzz", created=9, **running()) for index in range(1000)]
    counts = {pod["metadata"]["name"]: Counts(1, 0) for pod in live}
    once = status_of(begun(**spec), *failed, *live, counts=counts)
    assert len(once["learners"]) == 3000
    assert once["units"] == {"total": 12800, "claimed": 9000, "consumed": 4000, "lost": 4000, "percent": 31}
    assert status_of(a_run(status=once, **spec), *failed, *live, counts=counts) == once


def test_a_sidecar_on_a_host_whose_clock_is_ahead_is_told_as_well() -> None:
    pod = pod_manifest(**ended(0, last_words(1, 1), phase="Running", finished=9000))
    told = stalled(status_of(begun(), pod, pod_manifest("slow-0", **running()), seconds=70))
    assert told is not None
    assert told[0] == "SidecarRunning"
