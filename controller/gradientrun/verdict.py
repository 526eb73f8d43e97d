"""What has become of a run: one judgement, from which phase and conditions follow, so that they never disagree. Pure.

An end is final: once recorded for an attempt it stands, whatever happens to pods and Jobs later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from gradientmail.exits import Exit
from gradientrun.accounts import Units, most_lost
from gradientrun.build import build_pod_template
from gradientrun.observed import JobView, Observed, PodView
from gradientrun.patch import TemplateError
from gradientrun.runs import Run, read_time
from gradientrun.stalls import failure_words, is_hopeless

Phase = Literal["Pending", "Running", "Suspended", "Succeeded", "Failed"]
UNSEEN_PATIENCE = timedelta(minutes=2)
"""How long a pod that is about to start may, after the last other one's end, be one that has started unseen."""
INVALID_SPEC = "InvalidSpec"
"""The one failure that does not stand: another version of the controller may read the spec."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Phase of a run, with a reason in one word and a sentence for a person."""

    phase: Phase
    reason: str
    message: str

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a judgement rests on."""

    run: Run
    observed: Observed
    units: Units
    before: Mapping[str, Any]
    """The last status written for this attempt; empty if there is none."""
    now: datetime
    settled: bool = False
    """Whether every unit has an owner, and none of the owners may still be training."""

    @property
    def jobs(self) -> list[JobView]:
        """Jobs of this attempt."""
        return [job for job in self.observed.jobs if job.attempt == self.run.attempt]

    @property
    def pods(self) -> list[PodView]:
        """Pods of this attempt."""
        return [pod for pod in self.observed.pods if pod.attempt == self.run.attempt]

    @property
    def live(self) -> list[PodView]:
        """Pods of this attempt whose trainer runs."""
        return [pod for pod in self.pods if pod.live(self.now)]

    @property
    def unseen(self) -> list[PodView]:
        """Pods of this attempt that may run already, though their host has not said so yet."""
        idle = self.idle_since
        if idle is not None and self.now - idle > UNSEEN_PATIENCE:
            return []
        return [pod for pod in self.pods if pod.scheduled and pod.started is None and not _cannot_run(pod, self.now)]

    @property
    def idle_since(self) -> datetime | None:
        """Since when no node of this attempt runs, as far as is known; None while one does, or did until now."""
        recorded = condition(self.before, "Running")
        if self.live or recorded.get("status") != "False":
            return None
        ends = [pod.ended.time for pod in self.pods if pod.ended is not None and pod.ended.time is not None]
        return max([read_time(recorded["lastTransitionTime"]), *ends])

    @property
    def exhausted(self) -> bool:
        """Whether a node of this attempt has found nothing left to claim."""
        return any(pod.succeeded for pod in self.pods) or any(job.succeeded for job in self.jobs)

    @property
    def had_started(self) -> bool:
        """Whether a node of this attempt has ever run."""
        recorded = condition(self.before, "Running").get("reason")
        return recorded not in (None, *UNSTARTED) or any(pod.started for pod in self.pods)

    @property
    def earlier(self) -> bool:
        """Whether Jobs or pods of another attempt are still there."""
        return len(self.jobs) + len(self.pods) < len(self.observed.jobs) + len(self.observed.pods)


def _cannot_run(pod: PodView, now: datetime) -> bool:
    return pod.over or pod.missing(now) or is_hopeless(pod)


UNSTARTED = ("Starting", "Queued", "StoppingEarlierAttempt", "SuspendedBeforeStart")
"""Reasons of a run in which no node has run yet."""


def judge(facts: Facts) -> Verdict:
    """Return what has become of the run."""
    recorded = _recorded_end(facts.before)
    if recorded is not None:
        return recorded
    problem = _problem(facts)
    return problem or _end(facts) or _overdue(facts) or _present(facts)


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a status; empty if it is not there."""
    return next((item for item in status.get("conditions") or [] if item.get("type") == kind), {})


def finished_at(status: Mapping[str, Any]) -> datetime | None:
    """Return when the attempt that a status describes ended, or None if it has not, or may yet be read anew."""
    ended = any(
        condition(status, kind).get("status") == "True" and condition(status, kind).get("reason") != INVALID_SPEC
        for kind in ("Complete", "Failed")
    )
    return read_time(status["completionTime"]) if ended and status.get("completionTime") else None


def _recorded_end(before: Mapping[str, Any]) -> Verdict | None:
    for phase, kind in (("Succeeded", "Complete"), ("Failed", "Failed")):
        recorded = condition(before, kind)
        if recorded.get("status") == "True" and recorded.get("reason") != INVALID_SPEC:
            return Verdict(phase, recorded.get("reason", ""), recorded.get("message", ""))  # type: ignore[arg-type]
    return None


def _problem(facts: Facts) -> Verdict | None:
    run = facts.run
    if run.spec is None:
        return Verdict("Failed", INVALID_SPEC, run.spec_problem)
    return _template_problem(facts) or _configuration_problem(facts) or _too_much_lost(facts)


def _template_problem(facts: Facts) -> Verdict | None:
    built = {job.pool for job in facts.jobs}
    try:
        for pool in facts.run.pools:
            if pool.name not in built:
                build_pod_template(facts.run, pool)
    except TemplateError as error:
        return Verdict("Failed", "InvalidTemplate", str(error))
    return None


def _configuration_problem(facts: Facts) -> Verdict | None:
    for pod in facts.pods:
        if pod.ended is not None and pod.ended.exit_code == Exit.CONFIGURATION:
            return Verdict("Failed", "ConfigurationError", f"node {pod.node}: {failure_words(pod)}")
    for job in facts.jobs:
        if job.finished == "Failed" and job.reason == "PodFailurePolicy":
            return Verdict("Failed", "ConfigurationError", f"pool {job.pool}: {job.message}")
    return None


def _too_much_lost(facts: Facts) -> Verdict | None:
    assert facts.run.spec is not None, "checked before"
    limit = facts.run.spec.max_lost_units
    if facts.units.lost <= most_lost(limit, facts.units.total):
        return None
    return Verdict(
        "Failed",
        "TooManyUnitsLost",
        f"{facts.units.lost} of {facts.units.total} units are lost with the nodes that had claimed them, "
        f"more than maxLostUnits ({limit}) allows",
    )


def _end(facts: Facts) -> Verdict | None:
    if facts.live:
        return None
    if facts.settled:
        return Verdict("Succeeded", "AllUnitsDone", _success(facts.units))
    if facts.exhausted:
        return None
    jobs = facts.jobs
    wanted = [pool for pool in facts.run.pools if pool.replicas]
    given_up = len(jobs) >= len(wanted) > 0 and all(_given_up(job) for job in jobs)
    return Verdict("Failed", "NodesFailed", _last_failure(facts)) if given_up else None


def _given_up(job: JobView) -> bool:
    return job.finished == "Failed" or (job.replicas > 0 and set(range(job.replicas)) <= job.failed)


def _success(units: Units) -> str:
    if units.lost == 0:
        return f"all {units.total} units are consumed"
    return f"{units.consumed} of {units.total} units are consumed, {units.lost} were lost with the nodes that held them"


def _last_failure(facts: Facts) -> str:
    failed = [pod for pod in facts.pods if failure_words(pod)]
    if not failed:
        return "every node has failed more often than restartsPerNode allows"
    last = max(failed, key=lambda pod: (pod.ended and pod.ended.time) or pod.created)
    return f"every node has failed more often than restartsPerNode allows; the last, {last.node}: {failure_words(last)}"


def active_since(facts: Facts) -> datetime:
    """Return when the attempt began or was last resumed."""
    suspended = condition(facts.before, "Suspended")
    if not facts.before.get("startTime") or suspended.get("status") == "True":
        return facts.now
    begun = read_time(facts.before["startTime"])
    return max(begun, read_time(suspended["lastTransitionTime"])) if suspended else begun


def start_deadline(facts: Facts) -> datetime | None:
    """Return when a node must have started, or None if one has, or while the run waits for a person or a queue."""
    spec = facts.run.spec
    if spec is None or spec.start_deadline_seconds is None or spec.suspend or facts.had_started or _queued(facts):
        return None
    begun = max([active_since(facts), *(job.started for job in facts.jobs if job.started and facts.run.queue)])
    return begun + timedelta(seconds=spec.start_deadline_seconds)


def active_deadline(facts: Facts) -> datetime | None:
    """Return when the run must have ended, or None."""
    spec = facts.run.spec
    if spec is None or spec.active_deadline_seconds is None or spec.suspend:
        return None
    return active_since(facts) + timedelta(seconds=spec.active_deadline_seconds)


def _overdue(facts: Facts) -> Verdict | None:
    spec = facts.run.spec
    assert spec is not None, "checked before"
    start, end = start_deadline(facts), active_deadline(facts)
    if start is not None and facts.now >= start:
        return Verdict(
            "Failed",
            "StartDeadlineExceeded",
            f"no node has started within {spec.start_deadline_seconds} s{_why(facts)}",
        )
    if end is not None and facts.now >= end:
        return Verdict(
            "Failed", "ActiveDeadlineExceeded", f"the run has taken longer than {spec.active_deadline_seconds} s"
        )
    return None


def _why(facts: Facts) -> str:
    stalled = condition(facts.before, "Stalled")
    if stalled.get("status") == "True":
        return f": {stalled['message']}"
    return f": {_stopping(facts)}" if facts.earlier else ""


def _queued(facts: Facts) -> bool:
    return bool(facts.run.queue) and bool(facts.jobs) and all(job.suspended for job in facts.jobs)


def _present(facts: Facts) -> Verdict:
    live, started = len(facts.live), facts.had_started
    wanted = sum(pool.replicas for pool in facts.run.pools)
    if facts.run.suspended:
        return _suspended(facts)
    if live:
        return Verdict("Running", "NodesRunning", f"{live} of {_nodes(wanted)} running")
    if facts.earlier:
        return Verdict("Pending", "StoppingEarlierAttempt", _stopping(facts))
    if _queued(facts):
        reason = "QueuedAgain" if started else "Queued"
        return Verdict("Pending", reason, f"waiting for Kueue to admit the run in queue {facts.run.queue!r}")
    if started:
        return Verdict("Pending", "WaitingForNodes", f"none of {_nodes(wanted)} runs at present")
    return Verdict("Pending", "Starting", f"waiting for the first of {_nodes(wanted)} to start")


def _stopping(facts: Facts) -> str:
    earlier = (pod for pod in facts.observed.pods if pod.attempt != facts.run.attempt)
    lost = next((pod for pod in earlier if pod.missing(facts.now)), None)
    if lost is None:
        return "nodes of an earlier attempt are still stopping"
    return (
        f"a node of an earlier attempt, {lost.node}, may still run on a host that does not answer: "
        f"once the host is certainly off, delete its Node, or the pod {lost.name} with --force"
    )


def _suspended(facts: Facts) -> Verdict:
    if facts.live:
        return Verdict("Running", "Suspending", f"{_nodes(len(facts.live))} still stopping: spec.suspend is set")
    reason = "Suspended" if facts.had_started else "SuspendedBeforeStart"
    return Verdict("Suspended", reason, "spec.suspend is set: no node runs until it is false again")


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
