"""What Kueue does to the pools' Jobs of a run that carries a queue's name, done here as Kueue does it.

Kueue itself is not needed for it: its Job integration suspends and resumes Jobs, and while they are suspended writes
where their pods may run into their templates.
"""

from __future__ import annotations

from tests.cluster.harness.api import JOBS, Object
from tests.cluster.harness.manifests import holding, queue_pool, run_manifest
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run
from tests.cluster.harness.waiting import stays, until

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}


def _apply(namespace: Namespace, name: str, pool: Object) -> Run:
    manifest = run_manifest(name, [pool])
    return namespace.apply({**manifest, "metadata": {"name": name, "labels": QUEUE}})


def _job(run: Run) -> Object:
    return until(lambda: next(iter(run.jobs()), None), "the pool's Job", 30)


def _kueue_sets(run: Run, **spec: object) -> None:
    """Change the Job as Kueue's controller would."""
    run.api.patch(JOBS, run.namespace, _job(run)["metadata"]["name"], {"spec": spec})


def test_a_queued_run_waits_for_kueue_and_runs_where_kueue_says(namespace: Namespace, hosts: list[str]) -> None:
    run = _apply(namespace, "queued", queue_pool("a", 2, seconds=0.02))
    job = _job(run)
    assert job["spec"]["suspend"] is True, "born suspended: it can never start before it is admitted"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    run.wait(lambda status: _reason(status) == "Queued", "the reason Queued", 30)
    stays(lambda: run.pods() == [], "no pod before admission", 3, run.pods)
    where = {"kubernetes.io/hostname": hosts[-1]}
    _kueue_sets(run, template={"spec": {"nodeSelector": where}})
    _kueue_sets(run, suspend=False)
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    assert {pod["spec"]["nodeName"] for pod in run.pods()} == {hosts[-1]}
    assert _job(run)["spec"]["template"]["spec"]["nodeSelector"] == where


def test_a_preempted_run_waits_again_and_goes_on(namespace: Namespace) -> None:
    run = _apply(namespace, "preempted", holding())
    _kueue_sets(run, suspend=False)
    run.wait_running(1, 60)
    prefix = run.prefix
    _kueue_sets(run, suspend=True)
    run.wait(lambda status: _reason(status) == "QueuedAgain", "the reason QueuedAgain", 60)
    stays(lambda: _job(run)["spec"]["suspend"] is True, "the Job stays suspended", 3)
    _kueue_sets(run, suspend=False)
    run.wait_running(1, 60)
    assert run.prefix == prefix
    run.patch(suspend=True)
    until(lambda: run.jobs() == [], "the Job to go, and its quota with it", 60)
    run.wait_phase("Suspended", 30)
    run.patch(suspend=False)
    assert _job(run)["spec"]["suspend"] is True
    run.delete()


def _reason(status: object) -> str:
    assert isinstance(status, dict)
    conditions = {item["type"]: item for item in status.get("conditions") or []}
    return str(conditions.get("Running", {}).get("reason", ""))
