"""As much of Kubernetes as a run's life needs: the Job controller, kubelets, trainers and a shared queue; no real time.

Jobs are Indexed, with restarts per index, pods replaced once they have ended, elastic, and suspended by deleting
their pods, as Kubernetes documents it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gradientrun.build import PREFIX_FILE
from gradientrun.observed import Counts
from gradientrun.plan import Action, Create, DeleteJob, DeleteRun, ScaleJob, SuspendJob
from gradientrun.runs import Manifest
from tests.unit.controller.manifests import text

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


@dataclass
class Trainer:
    """What a pod's trainer has done, whatever anybody knows of it."""

    prefix: str
    claimed: int = 0
    consumed: int = 0


@dataclass
class Kubernetes:
    """Objects by name; trainers by pod; units left by mailbox prefix."""

    units: int
    jobs: dict[str, Manifest] = field(default_factory=dict)
    pods: dict[str, Manifest] = field(default_factory=dict)
    departed: list[Manifest] = field(default_factory=list)
    """Pods that are gone with last words that the controller has not been told yet."""
    config_maps: dict[str, Manifest] = field(default_factory=dict)
    trainers: dict[str, Trainer] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    made: int = 0
    run_deleted: bool = False

    def carry_out(self, action: Action) -> None:
        """Do what the controller asks for."""
        match action:
            case Create(manifest):
                self._create(manifest)
            case ScaleJob(name, uid, replicas):
                self._patch(name, uid, completions=replicas, parallelism=replicas)
            case SuspendJob(name, uid, suspend):
                self._patch(name, uid, suspend=suspend)
            case DeleteJob(name, uid):
                if self.jobs.get(name, {}).get("metadata", {}).get("uid") == uid:
                    self.delete_job(name)
            case DeleteRun():
                self.run_deleted = True

    def _create(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "ConfigMap":
            self.config_maps.setdefault(name, manifest)
        elif name not in self.jobs:
            metadata = manifest["metadata"] | {"uid": self._uid(), "resourceVersion": "1"}
            self.jobs[name] = manifest | {"metadata": metadata, "status": {"startTime": text(self.now)}}

    def _uid(self) -> str:
        self.made += 1
        return f"uid-{self.made}"

    def _patch(self, name: str, uid: str, **spec: Any) -> None:
        job = self.jobs.get(name)
        if job is not None and job["metadata"]["uid"] == uid:
            job["spec"] |= spec

    def delete_job(self, name: str) -> None:
        """Delete a Job; the garbage collector deletes its pods."""
        del self.jobs[name]
        for pod in self._pods_of(name):
            self.delete_pod(pod)

    def delete_pod(self, name: str) -> None:
        """Delete a pod: one that runs gets its time to leave."""
        self.pods[name]["metadata"].setdefault("deletionTimestamp", text(self.now + 60))

    def _pods_of(self, job: str) -> list[str]:
        return [name for name, pod in self.pods.items() if pod["job"] == job]

    def step_jobs(self) -> None:
        """Let the Job controller see everything once."""
        for name, job in self.jobs.items():
            self._count_ends(name, job)
            self._let_go(name, job)
            if not job["spec"]["suspend"] and not job["status"].get("conditions"):
                self._add_pods(name, job)

    def _count_ends(self, name: str, job: Manifest) -> None:
        done, failed = set(job.setdefault("done", [])), set(job.setdefault("failed", []))
        for pod in map(self.pods.get, self._pods_of(name)):
            assert pod is not None
            if pod["status"]["phase"] == "Succeeded":
                done.add(pod["index"])
            elif pod["status"]["phase"] == "Failed" and pod["failures"] >= job["spec"]["backoffLimitPerIndex"]:
                failed.add(pod["index"])
        wanted = set(range(job["spec"]["completions"]))
        job["done"], job["failed"] = sorted(done & wanted), sorted(failed & wanted)
        job["status"] |= {"completedIndexes": _indexes(job["done"]), "failedIndexes": _indexes(job["failed"])}
        if wanted <= done | failed and wanted:
            kind = "Failed" if failed & wanted else "Complete"
            job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": "FailedIndexes", "message": ""}]

    def _let_go(self, name: str, job: Manifest) -> None:
        for pod in self._pods_of(name):
            unwanted = job["spec"]["suspend"] or self.pods[pod]["index"] >= job["spec"]["completions"]
            if unwanted and self.pods[pod]["status"]["phase"] not in ("Succeeded", "Failed"):
                self.delete_pod(pod)

    def _add_pods(self, name: str, job: Manifest) -> None:
        mine = [self.pods[pod] for pod in self._pods_of(name)]
        for index in range(job["spec"]["completions"]):
            phases = [pod["status"]["phase"] for pod in mine if pod["index"] == index]
            over = index in job["done"] or index in job["failed"]
            if not over and all(phase == "Failed" for phase in phases):
                self._add_pod(name, job, index, failures=len(phases))

    def _add_pod(self, job_name: str, job: Manifest, index: int, failures: int) -> None:
        uid = self._uid()
        template = job["spec"]["template"]
        name = f"{job_name}-{index}-{uid}"
        metadata = {
            "name": name, "namespace": "team", "uid": uid, "creationTimestamp": text(self.now),
            "labels": template["metadata"]["labels"] | {INDEX: str(index)},
            "annotations": {FAILURES: str(failures)},
            "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"], "controller": True}],
        }  # fmt: skip
        env = {item["name"]: item.get("value") for item in template["spec"]["containers"][0]["env"]}
        (volume,) = [item for item in template["spec"]["volumes"] if item["name"] == "run"]
        assert self.config_maps[volume["configMap"]["name"]]["data"][PREFIX_FILE] == env["GRADIENTMAIL_MAILBOX"]
        self.trainers[name] = Trainer(str(env["GRADIENTMAIL_MAILBOX"]))
        self.pods[name] = {
            "metadata": metadata, "status": {"phase": "Pending"},
            "job": job_name, "index": index, "failures": failures,
        }  # fmt: skip

    def start(self, name: str) -> None:
        """Let a kubelet start a pod."""
        pod = self.pods[name]
        if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            running = {"name": "trainer", "state": {"running": {"startedAt": text(self.now)}}}
            scheduled = [{"type": "PodScheduled", "status": "True"}]
            pod["status"] = {
                "phase": "Running", "podIP": "10.0.0.1", "conditions": scheduled, "containerStatuses": [running]
            }  # fmt: skip

    def work(self, name: str) -> None:
        """Let a trainer finish its unit and claim the next; it ends where there is none."""
        if self.pods[name]["status"]["phase"] != "Running":
            return
        trainer = self.trainers[name]
        trainer.consumed = trainer.claimed
        left = self.left.setdefault(trainer.prefix, self.units)
        if left:
            trainer.claimed += 1
            self.left[trainer.prefix] = left - 1
        else:
            self.end(name, 0)

    def end(self, name: str, code: int, *, silent: bool = False) -> None:
        """End a pod's trainer, if it runs, with last words or without."""
        pod, trainer = self.pods[name], self.trainers[name]
        if pod["status"]["phase"] != "Running":
            return
        words = {"learner": name, "node": "n", "claimed": trainer.claimed, "consumed": trainer.consumed}
        state = {"exitCode": code, "message": "" if silent else json.dumps(words), "finishedAt": text(self.now)}
        pod["status"] |= {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "trainer", "state": {"terminated": state}}],
        }

    def sweep(self, name: str) -> None:
        """Let the kubelet be done with a pod that is being deleted."""
        pod = self.pods[name]
        if "deletionTimestamp" in pod["metadata"]:
            self.end(name, 143)
            self.step_jobs()
            del self.pods[name]
            if "containerStatuses" in pod["status"]:
                self.departed.append(pod | {"gone": True})

    def counts(self, names: tuple[str, ...]) -> dict[str, Counts]:
        """Return what the trainers of some pods tell of themselves."""
        return {name: Counts(self.trainers[name].claimed, self.trainers[name].consumed) for name in names}

    def trained(self, prefix: str) -> int:
        """Return how many units have been trained under a prefix."""
        return sum(trainer.consumed for trainer in self.trainers.values() if trainer.prefix == prefix)


def _indexes(indexes: list[int]) -> str:
    return ",".join(map(str, indexes))
