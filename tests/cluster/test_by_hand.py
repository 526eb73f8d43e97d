"""What people do to a run's objects with kubectl while it runs, at once or in quick succession; and nodes that lie."""

from __future__ import annotations

from typing import Any

import pytest

from gradientmail.run_status import MOST_LEARNERS
from gradientrun.cluster import APPLY
from tests.cluster.harness.api import CONFIG_MAPS, JOBS, PODS, QUOTAS, RUNS, Object
from tests.cluster.harness.controller import Controller
from tests.cluster.harness.manifests import holding, queue_pool, run_manifest, scripted_pool
from tests.cluster.harness.namespaces import Namespace, give_quota
from tests.cluster.harness.runs import Run
from tests.cluster.harness.waiting import stays, until

QUEUE = "kueue.x-k8s.io/queue-name"


def name_of(item: Object) -> str:
    name: str = item["metadata"]["name"]
    return name


def suspended(run: Run) -> list[bool]:
    return [job["spec"].get("suspend", False) for job in run.jobs()]


def test_a_config_map_deleted_by_hand_comes_back_when_a_node_needs_it(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("bereft", [holding()]))
    (pod,) = run.wait_running(1, 60)
    (config_map,) = run.config_maps()
    namespace.api.delete(CONFIG_MAPS, namespace.name, name_of(config_map))
    namespace.api.delete(PODS, namespace.name, name_of(pod))
    (replacement,) = until(lambda: [p for p in run.running_pods() if name_of(p) != name_of(pod)], "another pod", 85)
    assert name_of(replacement) != name_of(pod)
    status = run.wait(lambda status: status["nodes"][0].get("pod") == name_of(replacement), "the node", 30)
    assert status["nodes"][0]["restarts"] == 1
    (anew,) = run.config_maps()
    assert anew["data"] == config_map["data"]


def test_no_pod_waits_for_a_config_map_that_a_quota_refuses(namespace: Namespace) -> None:
    # Kubernetes puts its own certificates into a ConfigMap of each namespace: that is the one.
    one = {"count/configmaps": "1"}
    give_quota(one, namespace.api, namespace.name, used=one)
    run = namespace.apply(run_manifest("unfed", [holding()]))
    told = run.wait_condition("Stalled", 60, "Refused")
    assert told["message"].startswith("the run: ")
    assert "exceeded quota: small" in told["message"]
    assert run.jobs() == []
    namespace.api.delete(QUOTAS, namespace.name, "small")
    run.wait_running(1, 60)


def test_what_the_status_says_is_put_right_when_somebody_edits_it(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("edited", [holding()]))
    before = run.wait(lambda status: status["nodes"][0]["step"] == 0, "the first counts", 60)
    wrong: dict[str, Any] = {
        "phase": "Pending", "mailboxPrefix": "s3://elsewhere/x", "nodesRunning": 7, "pools": [], "nodes": [],
        "units": {"total": 0, "claimed": 9, "consumed": 9, "lost": 9, "percent": 3}, "observedGeneration": 77,
    }  # fmt: skip
    namespace.api.patch(RUNS, namespace.name, "edited", {"status": wrong}, part="status")
    kept = ("phase", "mailboxPrefix", "nodesRunning", "pools", "nodes", "units", "observedGeneration", "startTime")
    run.wait(lambda status: all(status.get(name) == before[name] for name in kept), "the status as it was", 30)
    namespace.api.patch(RUNS, namespace.name, "edited", {"status": None}, part="status")
    after = run.wait(lambda status: status.get("phase") == "Running", "the phase again", 30)
    assert after["mailboxPrefix"] == before["mailboxPrefix"]


def test_a_run_given_to_a_queue_and_taken_from_it_waits_where_it_should(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("moved", [holding()]))
    run.wait_running(1, 60)
    run.patch(suspend=True)
    run.wait_phase("Suspended", 60)
    label(namespace, "moved", "gpus")
    run.patch(suspend=False)
    until(lambda: queues(run) == ["gpus"], "the Job in the queue", 30)
    run.wait(lambda status: reason(status) == "QueuedAgain", "the reason QueuedAgain", 30)
    assert suspended(run) == [True]
    label(namespace, "moved", None)
    run.wait_running(1, 60)
    assert queues(run) == [None]


def label(namespace: Namespace, name: str, queue: str | None) -> None:
    namespace.api.patch(RUNS, namespace.name, name, {"metadata": {"labels": {QUEUE: queue}}})


def queues(run: Run) -> list[str | None]:
    return [job["metadata"]["labels"].get(QUEUE) for job in run.jobs()]


def reason(status: Any) -> str:
    return str(next((item["reason"] for item in status.get("conditions", ()) if item["type"] == "Running"), ""))


def test_changes_in_quick_succession_end_as_the_last_of_them_says(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("restless", [holding("a", 2), holding("b", 1)]))
    for _ in range(3):
        run.patch(suspend=True)
        run.scale(a=3, b=0)
        run.patch(suspend=False)
        run.scale(a=0, b=2)
    run.patch(attempt=2, suspend=True)
    run.scale(a=1, b=2)
    run.patch(attempt=3)
    run.patch(suspend=False)
    status = run.wait(lambda status: status.get("nodesRunning") == 3 and status["attempt"] == 3, "three nodes", 80)
    assert status["mailboxPrefix"].endswith(f"{run.uid}-3")
    assert {pod["metadata"]["labels"]["gradientmail.io/attempt"] for pod in run.wait_running(3, 30)} == {"3"}
    assert [node["name"] for node in status["nodes"]] == ["a-0", "b-0", "b-1"]
    stays(lambda: len(run.running_pods()) == 3, "three pods", 3, run.pods)


def test_a_run_deleted_and_applied_again_and_again_has_the_last_ones_children_alone(namespace: Namespace) -> None:
    uids = []
    for _ in range(4):
        run = namespace.apply(run_manifest("phoenix", [holding("a", 2)]))
        uids.append(run.uid)
        run.delete()
        until(lambda: namespace.api.find(RUNS, namespace.name, "phoenix") is None, "the run to go", 30)
    run = namespace.apply(run_manifest("phoenix", [queue_pool(seconds=0.02)]))
    assert run.wait_phase("Succeeded", 80)["mailboxPrefix"].endswith(f"{run.uid}-1")
    assert run.uid not in uids
    until(lambda: {job["metadata"]["labels"]["gradientmail.io/run-uid"] for job in run.jobs()} == {run.uid}, "one", 60)


def test_the_longest_status_is_stored_and_read_back(namespace: Namespace, controller: Controller) -> None:
    name, pool = "r" * 63, "p" * 40
    run = namespace.apply(run_manifest(name, [holding(pool, 1000)], suspend=True))
    restarts, before = controller.restarts(), run.wait_phase("Suspended", 60)
    learners = [
        {"node": f"{pool}-{index % 1000}", "pod": f"{'r' * 46}-a0e57e-{index:09d}", "claimed": 1000, "consumed": 1000}
        for index in range(MOST_LEARNERS)
    ]
    status = {**before, "learners": learners}
    applied = {"apiVersion": "gradientmail.io/v1alpha1", "kind": "GradientRun", "metadata": {"name": name}}
    query = {"fieldManager": "gradientrun-controller", "force": "true"}
    path = RUNS.path(namespace.name, name, "status")
    written = namespace.api.request("PATCH", path, {**applied, "status": status}, content=APPLY, query=query)
    assert len(written["status"]["learners"]) == MOST_LEARNERS
    summed = run.wait(lambda status: len(status["learners"]) == 1000, "a sum per node", 60)
    assert {record["claimed"] for record in summed["learners"]} == {3000}
    assert summed["phase"] == "Suspended"
    assert controller.restarts() == restarts


NONSENSE = '{"learner":"l","node":"n","claimed":1e400,"consumed":-1,"step":"x","message":7}'
LIES = 'gradientmail_units_claimed_total +Inf\ngradientmail_units_consumed_total -1\ngradientmail_step 1e300\n{"'


@pytest.mark.parametrize("words", [NONSENSE, "[" * 4000, '{"learner":"l","node":"n","message":"\\ud800"}'])
def test_a_node_that_tells_nonsense_harms_nothing(namespace: Namespace, words: str) -> None:
    lying = scripted_pool("liar", told={"page": LIES, "words": words, "seconds": 8, "exit": 1})
    run = namespace.apply(run_manifest("deceived", [lying, queue_pool("a", seconds=0.05)], restartsPerNode=0))
    status = run.wait_phase("Succeeded", 80)
    assert status["units"] == {"total": 160, "claimed": 160, "consumed": 160, "lost": 0, "percent": 100}
    assert next(node for node in status["nodes"] if node["pool"] == "liar")["claimed"] == 0


def test_a_job_whose_pods_are_refused_by_its_own_template_says_so(namespace: Namespace) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "env": [{"name": "GRADIENTMAIL_LEARNER", "value": "x"}]}]}}
    run = namespace.apply(run_manifest("usurper", [{"name": "a", "gpus": 0, "template": template}]))
    told = run.wait_condition("Failed", 30, "InvalidTemplate")
    assert told["message"] == (
        "nodes[a].template changes the variable GRADIENTMAIL_LEARNER of the trainer: "
        "leave it as it is, the run depends on it"
    )
    assert (run.jobs(), run.pods()) == ([], [])


def test_a_job_patched_by_hand_is_put_right_where_the_run_has_a_say(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("tampered", [holding("a", 2)]))
    run.wait_running(2, 60)
    (job,) = run.jobs()
    namespace.api.patch(JOBS, namespace.name, name_of(job), {"spec": {"parallelism": 1, "completions": 1}})
    until(lambda: run.jobs()[0]["spec"]["completions"] == 2, "the replicas of the run", 30)
    namespace.api.patch(JOBS, namespace.name, name_of(job), {"spec": {"suspend": True}})
    until(lambda: suspended(run) == [False], "the Job to go on", 30)
    run.wait_running(2, 60)
