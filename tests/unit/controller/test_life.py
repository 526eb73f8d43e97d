"""A run's whole life against a little Kubernetes: people, kubelets, trainers and the controller act in any order.

Whatever the order: a prefix is recorded before a Job can use it, attempts never overlap, counts neither fall nor
exceed the truth, an end stands, every status is one that the API server takes; and once nobody interferes, the run
ends, and then nothing more is done.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gradientmail.run_status import RunStatus
from gradientrun.names import QUEUE_LABEL
from gradientrun.observed import Observed, read_observed
from gradientrun.plan import Create, Plan, SuspendJob, asked, plan
from gradientrun.runs import Manifest, Run, read_run
from gradientrun.status import derive_status
from gradientrun.verdict import condition
from tests.unit.controller.little_kubernetes import Kubernetes
from tests.unit.controller.manifests import at, run_manifest

UNITS = 8
PICK = st.integers(0, 7)


class Life(RuleBasedStateMachine):
    """One GradientRun with two pools, later perhaps a third."""

    def __init__(self) -> None:
        super().__init__()
        nodes = [{"name": "fast", "replicas": 2}, {"name": "slow", "replicas": 1}]
        self.manifest: Manifest = run_manifest(nodes=nodes, maxLostUnits="100%", restartsPerNode=1)
        self.kubernetes = Kubernetes(units=UNITS)
        self.silent = False

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.manifest["spec"]
        return spec

    def pod(self, pick: int) -> str:
        names = sorted(self.kubernetes.pods)
        return names[pick % len(names)]

    def observed(self, run: Run) -> Observed:
        jobs = deepcopy([*self.kubernetes.jobs.values()])
        return read_observed(run, jobs, deepcopy([*self.kubernetes.pods.values(), *self.kubernetes.departed]))

    @rule(alone=st.booleans())
    def the_controller_reconciles(self, alone: bool) -> None:
        departed = list(self.kubernetes.departed)
        self.reconcile()
        if not alone:
            self.reconcile()
            self.kubernetes.departed += departed  # another controller has not heard of it yet

    def reconcile(self) -> Plan:
        before = self.manifest.get("status") or {}
        run = read_run(deepcopy(self.manifest))
        seen = self.observed(run)
        counts = self.kubernetes.counts(asked(run, seen, at(self.kubernetes.now)))
        seen = Observed(jobs=seen.jobs, pods=seen.pods, counts=counts)
        status = derive_status(run, seen, at(self.kubernetes.now))
        self.kubernetes.departed.clear()
        self.check(before, status)
        assert derive_status(read_run(self.manifest | {"status": status}), seen, at(self.kubernetes.now)) == status
        self.manifest["status"] = status
        decided = plan(read_run(deepcopy(self.manifest)), seen, at(self.kubernetes.now))
        self.carry_out(decided)
        return decided

    def check(self, before: Manifest, status: Manifest) -> None:
        RunStatus.model_validate(status)
        units = status["units"]
        assert units["consumed"] + units["lost"] <= units["claimed"] <= units["total"] == UNITS
        assert units["consumed"] <= self.kubernetes.trained(status["mailboxPrefix"])
        assert (status["phase"] == "Running") == (condition(status, "Running")["status"] == "True")
        assert (status["phase"] == "Succeeded") == (condition(status, "Complete").get("status") == "True")
        assert (status["phase"] == "Failed") == (condition(status, "Failed").get("status") == "True")
        assert sum(pool["running"] for pool in status["pools"]) <= status["nodesRunning"]
        if before.get("attempt") == status["attempt"]:
            assert units["consumed"] >= before["units"]["consumed"]
            assert before["phase"] not in ("Succeeded", "Failed") or status["phase"] == before["phase"]

    def carry_out(self, decided: Plan) -> None:
        for action in decided.actions:
            if isinstance(action, Create) and action.manifest["kind"] == "Job":
                attempt = action.manifest["metadata"]["labels"]["gradientmail.io/attempt"]
                status, children = (
                    self.manifest["status"],
                    [*self.kubernetes.jobs.values(), *self.kubernetes.pods.values()],
                )
                assert attempt == str(status["attempt"]) == str(self.spec.get("attempt", 1))
                assert status["mailboxPrefix"].endswith(f"-{attempt}")
                assert {child["metadata"]["labels"]["gradientmail.io/attempt"] for child in children} <= {attempt}
            if isinstance(action, SuspendJob):
                assert QUEUE_LABEL not in self.kubernetes.jobs[action.name]["metadata"]["labels"], "that is Kueue's"
            self.kubernetes.carry_out(action)

    @rule(seconds=st.sampled_from([0.5, 5.0, 20.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.kubernetes.now += seconds

    @rule()
    def jobs_are_seen_to(self) -> None:
        self.kubernetes.step_jobs()

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK)
    def a_pod_starts(self, pick: int) -> None:
        self.kubernetes.start(self.pod(pick))

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK)
    def a_trainer_works(self, pick: int) -> None:
        self.kubernetes.work(self.pod(pick))

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK, silent=st.booleans())
    def a_trainer_dies(self, pick: int, silent: bool) -> None:
        self.silent |= silent
        self.kubernetes.end(self.pod(pick), 137, silent=silent)

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK)
    def a_pod_is_deleted(self, pick: int) -> None:
        self.kubernetes.delete_pod(self.pod(pick))

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK)
    def a_deleted_pod_goes(self, pick: int) -> None:
        self.sweep(self.pod(pick))

    def sweep(self, name: str) -> None:
        """Let a deleted pod go. One that comes and goes between two reconciles leaves no count."""
        seen = {record["pod"] for record in self.manifest.get("status", {}).get("learners", [])}
        self.silent |= name not in seen
        self.kubernetes.sweep(name)

    @precondition(lambda self: self.kubernetes.pods)
    @rule(pick=PICK, trained=st.integers(0, 2))
    def a_host_is_drained(self, pick: int, trained: int) -> None:
        name = self.pod(pick)
        self.kubernetes.start(name)
        for _ in range(trained):
            self.kubernetes.work(name)
        self.kubernetes.delete_pod(name)
        self.sweep(name)

    @precondition(lambda self: self.kubernetes.jobs)
    @rule(pick=PICK)
    def a_job_is_deleted(self, pick: int) -> None:
        names = sorted(self.kubernetes.jobs)
        self.kubernetes.delete_job(names[pick % len(names)])

    @rule(pick=PICK, replicas=st.integers(0, 3))
    def a_pool_is_scaled(self, pick: int, replicas: int) -> None:
        pool = self.spec["nodes"][pick % len(self.spec["nodes"])]
        before, pool["replicas"] = pool["replicas"], replicas
        if not any(each["replicas"] for each in self.spec["nodes"]):
            pool["replicas"] = before  # the API server refuses it

    @rule()
    def a_pool_is_added(self) -> None:
        if len(self.spec["nodes"]) == 2:
            self.spec["nodes"].append({"name": "more", "replicas": 1})

    @rule(suspend=st.booleans())
    def it_is_suspended_or_resumed(self, suspend: bool) -> None:
        self.spec["suspend"] = suspend

    @rule()
    def another_attempt_is_asked_for(self) -> None:
        self.spec["attempt"] = self.spec.get("attempt", 1) + 1

    @rule(queue=st.sampled_from(["", "gpus", "others"]))
    def it_is_given_to_a_queue_or_taken_from_it(self, queue: str) -> None:
        self.manifest["metadata"]["labels"] = {QUEUE_LABEL: queue} if queue else {}

    @rule(admit=st.booleans())
    def kueue_admits_or_preempts(self, admit: bool) -> None:
        self.let_kueue(admit=admit)

    def let_kueue(self, *, admit: bool) -> None:
        for job in self.kubernetes.jobs.values():
            if QUEUE_LABEL in job["metadata"]["labels"] and not job["status"].get("conditions"):
                job["spec"]["suspend"] = not admit

    def teardown(self) -> None:
        """Nobody interferes any more: kubelets and trainers do their work, and the run comes to its end."""
        self.spec["suspend"] = False
        for _ in range(60):
            decided = self.reconcile()
            self.let_kueue(admit=True)
            self.kubernetes.step_jobs()
            for name in list(self.kubernetes.pods):
                self.kubernetes.start(name)
                self.kubernetes.work(name)
                self.sweep(name)
            self.kubernetes.now += 10
            if self.manifest["status"]["phase"] in ("Succeeded", "Failed") and not decided.actions:
                break
        status = self.manifest["status"]
        assert status["phase"] in ("Succeeded", "Failed"), status
        assert self.reconcile().actions == ()
        assert self.manifest["status"] == status
        if status["phase"] == "Succeeded" and not self.silent:
            assert status["units"]["consumed"] == self.kubernetes.trained(status["mailboxPrefix"])


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLife = Life.TestCase
