"""What keeps nodes from running, in the words of the kubelet, the scheduler or the API server. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from gradientmail.progress import NodeProgress
from gradientrun import names
from gradientrun.observed import JobView, Observed, PodView, Waiting
from gradientrun.runs import is_recent

HOPELESS = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "InvalidImageName": "InvalidImageName",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
    "RunContainerError": "RunContainerError",
    "CrashLoopBackOff": "CrashLoopBackOff",
}
"""Reasons of the kubelet that do not pass by themselves. It swings between the first two; here they are one."""

CREATION_PATIENCE = timedelta(seconds=20)
"""How long a container may take to be created, or a Job's pods to appear, before events are asked for the reason."""
SIDECAR_PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Stall:
    """Why one node, Job or run does not get on."""

    reason: str
    who: str
    words: str


def is_hopeless(pod: PodView) -> bool:
    """Whether the kubelet cannot start the pod's containers."""
    return any(waiting.reason in HOPELESS for waiting in pod.waiting)


def stalls(observed: Observed, now: datetime) -> list[Stall]:
    """Return what is stuck, the most general first."""
    found = [Stall("Refused", refusal.who, refusal.words) for refusal in observed.refusals]
    found += filter(None, (_job_stall(job, observed) for job in observed.jobs))
    found += filter(None, (pod_stall(pod, observed, now) for pod in observed.pods))
    return found


def pod_stall(pod: PodView, observed: Observed, now: datetime) -> Stall | None:
    """Return why a pod does not run, or None."""
    if pod.deadline is not None or pod.phase in ("Succeeded", "Failed"):
        return None
    if pod.unschedulable:
        return Stall("Unschedulable", f"node {pod.node}", pod.unschedulable)
    for waiting in pod.waiting:
        if waiting.reason in HOPELESS:
            return Stall(HOPELESS[waiting.reason], f"node {pod.node}", _words(waiting))
    if pod.ended is not None:
        return _sidecar_stall(pod, now)
    warning = observed.warnings.get(pod.uid)
    if warning and not pod.running:
        return Stall("PodNotStarting", f"node {pod.node}", warning.words)
    return None


def _words(waiting: Waiting) -> str:
    # The back-off quotes the error that led to it; alone, it reads the same in both of the kubelet's states.
    words = waiting.message.split("ErrImagePull: ", 1)[-1] or waiting.reason
    return words if waiting.container == names.CONTAINER else f"container {waiting.container}: {words}"


def _sidecar_stall(pod: PodView, now: datetime) -> Stall | None:
    if pod.ended is None or pod.ended.time is None or is_recent(pod.ended.time, now, SIDECAR_PATIENCE):
        return None
    return Stall(
        "SidecarRunning",
        f"node {pod.node}",
        "the trainer has ended, but another container keeps the pod: "
        "move it to initContainers with restartPolicy: Always in the pool's template",
    )


def _job_stall(job: JobView, observed: Observed) -> Stall | None:
    warning = observed.warnings.get(job.uid)
    newest = max((pod.created for pod in observed.pods if pod.pool == job.pool), default=None)
    if warning and missing_pods(job, observed) and (newest is None or warning.time > newest):
        return Stall("PodsRefused", f"pool {job.pool}", warning.words)
    return None


def missing_pods(job: JobView, observed: Observed) -> bool:
    """Whether the Job should have more pods than there are."""
    if job.suspended or job.finished or job.deleting or job.terminating:
        return False
    present = {pod.index for pod in observed.pods_of(job) if pod.succeeded or not pod.over}
    wanted = set(range(job.replicas)) - job.succeeded - job.failed
    return bool(wanted - present)


def puzzles(observed: Observed, now: datetime) -> list[str]:
    """Return UIDs of objects whose events should be read: they are late, and their status does not say why."""
    jobs = [job.uid for job in observed.jobs if _late_job(job, observed, now)]
    pods = [pod.uid for pod in observed.pods if _late_pod(pod, now)]
    return jobs + pods[:3]


def _late_job(job: JobView, observed: Observed, now: datetime) -> bool:
    return job.started is not None and now - job.started > timedelta(seconds=2) and missing_pods(job, observed)


def _late_pod(pod: PodView, now: datetime) -> bool:
    pending = pod.phase == "Pending" and pod.scheduled and pod.deadline is None
    return pending and now - pod.created > CREATION_PATIENCE and not is_hopeless(pod)


def summary(found: list[Stall]) -> Stall | None:
    """Return one stall that speaks for all: the most general, and how many more there are like it."""
    if not found:
        return None
    first = found[0]
    alike = sum(stall.reason == first.reason for stall in found)
    who = first.who if alike == 1 else f"{first.who} and {alike - 1} more"
    return Stall(first.reason, who, first.words)


def failure_words(pod: PodView) -> str:
    """Return why a pod has failed, with what to do where that is known; empty if it has not."""
    if pod.phase != "Failed" and (pod.ended is None or pod.ended.exit_code == 0):
        return ""
    if pod.ended is not None and pod.ended.reason == "OOMKilled":
        return "OOMKilled: the node needed more memory than its limit; raise resources.limits.memory in its template"
    if pod.disruption or pod.reason:
        return pod.disruption or f"{pod.reason}: {pod.message}".rstrip(": ")
    return _last_words(pod)


def _end_of_log(log: str) -> str:
    """Return what the last line says; a line in JSON says its message."""
    lines = log.strip().splitlines()
    last = lines[-1] if lines else ""
    try:
        return str(json.loads(last)["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return last


def _writable(text: str) -> str:
    """Return the text as it can be written: JSON may hold halves of characters, which the API server would replace."""
    return text.encode("utf-8", "replace").decode()


def _said(final: NodeProgress) -> str:
    """Return why the trainer ended. It writes its counts all the time, and why it ends only where it can."""
    cut_off = final.phase in ("starting", "training")
    return final.message or ("it ended without a word: see the end of its log" if cut_off else "")


def _last_words(pod: PodView) -> str:
    if pod.ended is None:
        return "the pod failed before the trainer started"
    final = pod.final
    words = _writable(_end_of_log(pod.ended.message) if final is None else _said(final))
    code = f"exit code {pod.ended.exit_code}"
    if pod.ended.reason not in ("", "Error", "Completed"):
        code = f"{pod.ended.reason}, {code}"
    return f"{words[:500]} ({code})" if words else code
