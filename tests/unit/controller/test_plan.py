"""What is done about a run in each state, as literal actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gradientrun.build import build_config_map, build_job, config_map_name
from gradientrun.observed import Counts, Observed, Warned
from gradientrun.plan import Create, DeleteJob, DeleteRun, Plan, ScaleJob, SuspendJob, asked, plan
from gradientrun.runs import Manifest, Run, read_run
from gradientrun.status import derive_status
from tests.unit.controller.manifests import (
    a_run,
    at,
    ended,
    finished,
    job_manifest,
    last_words,
    observed,
    pod_manifest,
    run_manifest,
    running,
)

QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
FAST, SLOW = ("first-fast-1", "job-fast-1"), ("first-slow-1", "job-slow-1")


def planned(
    *children: Manifest, seconds: float = 10, status: Manifest | None = None, labels: Any = None, **spec: Any
) -> Plan:
    """The plan once the status that goes with the children has been written."""
    before = status if status is not None else derive_status(a_run(labels=labels, **spec), Observed(), at(0))
    run = a_run(status=before, labels=labels, **spec)
    seen = observed(run, *children)
    written = derive_status(run, seen, at(seconds))
    return plan(a_run(status=written, labels=labels, **spec), seen, at(seconds))


def creations(run: Run, *pools: str) -> tuple[Create, ...]:
    jobs = [Create(build_job(run, pool)) for pool in run.pools if pool.name in pools]
    return (Create(build_config_map(run)), *jobs)


BOTH = (job_manifest(), job_manifest("slow", replicas=1))


def test_a_new_run_gets_its_config_map_and_then_a_job_per_pool() -> None:
    assert planned() == Plan(creations(a_run(), "fast", "slow"), 10)


def test_only_the_missing_job_is_created() -> None:
    assert planned(job_manifest()).actions == creations(a_run(), "slow")


def test_nothing_is_done_while_all_is_as_it_should_be() -> None:
    assert planned(*BOTH) == Plan((), 10)


def test_a_running_run_is_looked_at_often_enough_for_counts_within_ten_seconds() -> None:
    assert planned(*BOTH, pod_manifest(**running())) == Plan((), 7)


def test_a_look_between_two_readings_of_counts_does_not_put_off_the_next() -> None:
    seen = replace(observed(a_run(), *BOTH, pod_manifest(**running())), counted=at(10))
    run = a_run(status=derive_status(a_run(), seen, at(10)))
    # The clock may have been set meanwhile, forward or back.
    assert [plan(run, seen, at(seconds)).requeue_seconds for seconds in (10, 12, 15.5, 40, 0)] == [7, 5, 1.5, 7, 7]


def test_a_large_run_is_looked_at_less_often() -> None:
    nodes = [{"name": "fast", "replicas": 200}]
    pods = [pod_manifest(f"fast-{index}", **running()) for index in range(200)]
    assert planned(job_manifest(replicas=200), *pods, nodes=nodes).requeue_seconds == 20


def test_a_pool_without_replicas_has_no_job() -> None:
    nodes = [{"name": "fast", "replicas": 2}, {"name": "slow", "replicas": 0}]
    assert planned(nodes=nodes).actions == creations(a_run(nodes=nodes), "fast")
    assert planned(*BOTH, nodes=nodes).actions == (DeleteJob(*SLOW),)


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_are_followed_up_and_down(replicas: int) -> None:
    nodes = [{"name": "fast", "replicas": replicas}, {"name": "slow", "replicas": 1}]
    assert planned(*BOTH, nodes=nodes).actions == (ScaleJob(*FAST, replicas),)


def test_a_pool_added_later_gets_its_job() -> None:
    nodes = [{"name": "fast", "replicas": 2}, {"name": "slow", "replicas": 1}, {"name": "more", "replicas": 1}]
    assert planned(*BOTH, nodes=nodes).actions == creations(a_run(nodes=nodes), "more")


def test_a_finished_job_is_left_alone() -> None:
    nodes = [{"name": "fast", "replicas": 4}, {"name": "slow", "replicas": 1}]
    job = job_manifest(**finished("Failed", "FailedIndexes", "…"), failedIndexes="0,1")
    assert (
        planned(job, job_manifest("slow", replicas=1), pod_manifest("slow-0", **running()), nodes=nodes).actions == ()
    )


def test_suspending_suspends_the_jobs_and_then_costs_nothing() -> None:
    assert planned(*BOTH, suspend=True).actions == (SuspendJob(*FAST, suspend=True), SuspendJob(*SLOW, suspend=True))
    suspended = (job_manifest(suspend=True), job_manifest("slow", replicas=1, suspend=True))
    assert planned(*suspended, suspend=True) == Plan((), None)


def test_a_run_suspended_from_the_start_has_no_jobs() -> None:
    assert planned(suspend=True) == Plan((), None)


def test_resuming_lets_the_jobs_go_on() -> None:
    assert planned(job_manifest(suspend=True), job_manifest("slow", replicas=1)).actions == (
        SuspendJob(*FAST, suspend=False),
    )


def test_a_new_attempt_deletes_the_old_jobs_and_waits_for_their_pods() -> None:
    assert planned(*BOTH, pod_manifest(**running()), attempt=2) == Plan((DeleteJob(*FAST), DeleteJob(*SLOW)), 10)
    assert planned(pod_manifest(deleted=100, **running()), attempt=2) == Plan((), 10)
    assert planned(pod_manifest(deleted=100, **running()), attempt=2, seconds=128) == Plan((), 2)
    assert planned(attempt=2).actions == creations(a_run(attempt=2), "fast", "slow")


def test_a_deleted_job_is_created_again_once_its_pods_have_stopped() -> None:
    slow = job_manifest("slow", replicas=1)
    assert planned(slow, pod_manifest(deleted=100, **running())).actions == ()
    assert planned(slow, pod_manifest(**ended(143))).actions == creations(a_run(), "fast")
    lost = pod_manifest(deleted=100, **running())
    assert planned(slow, lost, seconds=130).actions == ()
    assert planned(slow, lost, seconds=131).actions == creations(a_run(), "fast")


def test_a_job_being_deleted_is_waited_for() -> None:
    job = job_manifest()
    job["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:05Z"
    assert planned(job, job_manifest("slow", replicas=1)).actions == ()


def test_the_nodes_of_an_ended_run_are_stopped_and_finished_ones_kept_for_their_logs() -> None:
    children = (
        job_manifest(**finished("Complete"), completedIndexes="0,1"),
        job_manifest("slow", replicas=1),
        pod_manifest(**ended(0, last_words(8, 8))),
    )
    assert planned(*children) == Plan((SuspendJob(*SLOW, suspend=True),), None)


def test_a_job_that_does_not_know_yet_that_its_pods_are_done_is_left_to_find_out() -> None:
    pods = [pod_manifest(node, **ended(0, last_words(4, 4))) for node in ("fast-0", "fast-1")]
    assert planned(job_manifest(), *pods) == Plan((), None)


def test_a_job_is_not_stopped_before_it_knows_that_its_pod_has_failed() -> None:
    both = (SuspendJob(*FAST, suspend=True), SuspendJob(*SLOW, suspend=True))
    for phase in ("Running", "Failed"):
        failing = pod_manifest(**ended(2, finished=60, phase=phase))
        assert planned(*BOTH, failing, seconds=61) == Plan((SuspendJob(*SLOW, suspend=True),), 10)
        assert planned(*BOTH, failing, seconds=70) == Plan(both, None), "a sidecar may keep the pod"
    knowing = job_manifest(failedIndexes="0")
    assert planned(knowing, BOTH[1], pod_manifest(**ended(2)), seconds=61) == Plan(both, None)


def test_a_host_whose_clock_is_ahead_does_not_keep_an_ended_run_going() -> None:
    failing = pod_manifest(**ended(2, finished=9000))
    assert planned(*BOTH, failing, seconds=61).actions == (
        SuspendJob(*FAST, suspend=True),
        SuspendJob(*SLOW, suspend=True),
    )


def missed(name: str) -> dict[str, Warned]:
    """What the kubelet says when a pod's ConfigMap is not there."""
    words = f'MountVolume.SetUp failed for volume "run" : configmap "{name}" not found'
    return {"pod-fast-0-aaaaa": Warned(words, at(30))}


def test_a_config_map_that_somebody_has_deleted_is_created_again() -> None:
    nodes = [{"name": "fast", "replicas": 2}, {"name": "slow"}, {"name": "more", "replicas": 0}]
    run = a_run(status=derive_status(a_run(nodes=nodes), Observed(), at(0)), nodes=nodes)
    for pools in (run.pools, run.pools[:2]):
        name = config_map_name(run, pools)
        seen = observed(run, *BOTH, pod_manifest(), warnings=missed(name))
        assert plan(run, seen, at(40)).actions == (Create(build_config_map(run, name)),)
    assert plan(run, observed(run, *BOTH, warnings=missed("the-users-own")), at(40)).actions == ()


def test_an_ended_run_is_deleted_when_its_time_is_up_and_not_before() -> None:
    pod = pod_manifest(**ended(0, last_words(8, 8)))
    done = derive_status(a_run(), observed(a_run(), pod), at(100))
    assert planned(status=done, seconds=130, ttlSecondsAfterFinished=60) == Plan((), 30)
    run = a_run()
    assert planned(status=done, seconds=160, ttlSecondsAfterFinished=60) == Plan((DeleteRun(run.uid),), None)


def test_an_ended_run_costs_nothing() -> None:
    pod = pod_manifest(**ended(0, last_words(8, 8)))
    done = derive_status(a_run(), observed(a_run(), pod), at(100))
    assert planned(status=done, seconds=1e6) == Plan((), None)


def test_a_deadline_is_waited_for_to_the_second() -> None:
    assert planned(*BOTH, seconds=895).requeue_seconds == 5
    assert planned(*BOTH, pod_manifest(**running()), seconds=97, activeDeadlineSeconds=100).requeue_seconds == 3


def test_a_pod_on_a_dead_host_is_no_reason_to_look_again_and_again() -> None:
    lost = pod_manifest(deleted=100, **running())
    assert planned(*BOTH, lost, seconds=127).requeue_seconds == 3
    assert planned(*BOTH, lost, seconds=131).requeue_seconds == 10


def test_nothing_is_done_for_a_run_that_is_being_deleted_or_cannot_be_read() -> None:
    manifest = run_manifest()
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:05Z"
    assert plan(read_run(manifest), Observed(), at(0)) == Plan()
    assert planned(data={"steps": 40, "batch": 64, "lanes": 5}) == Plan()


def test_in_a_namespace_that_is_being_deleted_the_jobs_go_so_that_their_pods_can() -> None:
    children = (*BOTH, pod_manifest(deleted=60, **running()))
    run = a_run(status=derive_status(a_run(), Observed(), at(0)))
    seen = observed(run, *children, ending=True)
    assert plan(run, seen, at(10)) == Plan((DeleteJob(*FAST), DeleteJob(*SLOW)), None)


def test_a_suspended_job_that_holds_on_to_a_deleted_pod_is_deleted_after_a_while() -> None:
    suspended = (job_manifest(suspend=True), job_manifest("slow", replicas=1, suspend=True))
    held = pod_manifest(deleted=100, **ended(143))
    assert planned(*suspended, held, suspend=True, seconds=110) == Plan((), 20)
    assert planned(*suspended, held, suspend=True, seconds=130) == Plan((DeleteJob(*FAST),), None)
    assert planned(*BOTH, held, seconds=1000).actions == ()


def queued(*, fast: bool = True, slow: bool = False, queue: str = "gpus") -> tuple[Manifest, Manifest]:
    """Both Jobs in a queue, suspended or not."""
    return job_manifest(suspend=fast, queue=queue), job_manifest("slow", replicas=1, suspend=slow, queue=queue)


def test_under_a_queue_suspension_is_kueues_alone() -> None:
    assert planned(*queued(), labels=QUEUE).actions == ()


def test_a_queued_run_is_not_looked_at_until_something_changes() -> None:
    assert planned(*queued(slow=True), labels=QUEUE) == Plan((), None)


def test_under_a_queue_suspending_gives_the_quota_back() -> None:
    assert planned(*queued(), labels=QUEUE, suspend=True).actions == (DeleteJob(*FAST), DeleteJob(*SLOW))


def test_under_a_queue_the_rest_of_an_ended_run_gives_its_quota_back() -> None:
    children = (*queued(fast=False, slow=True), pod_manifest(**ended(0, last_words(8, 8))))
    assert planned(*children, labels=QUEUE).actions == (DeleteJob(*FAST), DeleteJob(*SLOW))


def test_a_run_that_is_given_to_a_queue_later_moves_the_jobs_that_wait_and_leaves_those_that_run() -> None:
    jobs = (job_manifest(suspend=True), job_manifest("slow", replicas=1))
    assert planned(*jobs, labels=QUEUE).actions == (DeleteJob(*FAST),)
    assert planned(jobs[1], labels=QUEUE).actions == creations(a_run(labels=QUEUE), "fast")


@pytest.mark.parametrize("labels", [{}, {"kueue.x-k8s.io/queue-name": "others"}])
def test_a_run_that_is_taken_from_its_queue_takes_the_jobs_that_wait_and_fights_nobody(labels: dict[str, str]) -> None:
    assert planned(*queued(), labels=labels).actions == (DeleteJob(*FAST),)
    assert planned(*queued(), labels=labels, suspend=True).actions == (DeleteJob(*FAST), DeleteJob(*SLOW))


def test_the_nodes_to_ask_are_the_attempts_that_run() -> None:
    run = a_run(status=derive_status(a_run(), Observed(), at(0)))
    children = (
        pod_manifest(**running()),
        pod_manifest("fast-1"),
        pod_manifest("slow-0", **ended(0, last_words(1, 1))),
        pod_manifest("fast-0", "ccccc", attempt=2, **running()),
    )
    assert asked(run, observed(run, *children), at(10)) == ("first-fast-0-aaaaa",)


def test_no_node_of_an_ended_run_is_asked() -> None:
    pods = (pod_manifest(**ended(0, last_words(8, 8))), pod_manifest("slow-0", deleted=100, **running()))
    done = derive_status(a_run(), observed(a_run(), pods[0]), at(50))
    run = a_run(status=done)
    assert asked(run, observed(run, *pods, counts={"first-slow-0-aaaaa": Counts(0, 0)}), at(60)) == ()
