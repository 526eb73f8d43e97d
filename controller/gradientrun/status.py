"""The status of a run, derived from what exists and what was recorded: pure.

`derive_status(run, observed, now)` gives the whole status as it should be written. Nothing in the
controller is decided by reading a phase back; what is read back is what cannot be seen again: the
attempt's begin, its end, and the counts of learners whose pods are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gradientrun.accounts import Record, Units, kept, read_records, tally, unit_count, updated, write_records
from gradientrun.nodes import MESSAGE_LIMIT, listed, node_statuses, pool_status
from gradientrun.observed import Observed
from gradientrun.runs import Run, write_time
from gradientrun.stalls import Stall, stalls, summary
from gradientrun.verdict import Facts, Verdict, condition, judge


def derive_status(run: Run, observed: Observed, now: datetime) -> dict[str, Any]:
    """Return the run's status as it should be at `now` (aware of its time zone)."""
    facts = gather(run, observed, now)
    verdict = judge(facts)
    records = _records(facts)
    nodes = node_statuses(facts, records, over=verdict.over)
    found = [] if verdict.over or run.suspended else stalls(_current(facts), now)
    status: dict[str, Any] = {
        "observedGeneration": run.generation,
        "attempt": run.attempt,
        "phase": verdict.phase,
        "mailboxPrefix": run.prefix or facts.before.get("mailboxPrefix"),
        "startTime": facts.before.get("startTime") or write_time(now),
        "completionTime": _completion_time(facts, verdict),
        "units": _units(facts.units),
        "estimatedRemainingSeconds": None if verdict.over else _remaining(facts, records),
        "nodesRunning": len(facts.live),
        "nodesWanted": sum(pool.replicas for pool in run.pools),
        "nodes": listed(nodes),
        "pools": [pool_status(pool, nodes, records) for pool in run.pools],
        "learners": write_records(kept(records, facts.pods)),
        "conditions": _conditions(facts, verdict, summary(found)),
    }
    return {name: value for name, value in status.items() if value is not None}


def gather(run: Run, observed: Observed, now: datetime) -> Facts:
    """Return the facts that a judgement needs. A status of another attempt counts as none."""
    before = run.status if run.status.get("attempt") == run.attempt else {}
    none = Units(total=1, claimed=0, consumed=0, lost=0)
    facts = Facts(run=run, observed=observed, units=none, before=before, now=now)
    if run.spec is None:
        return replace(facts, units=_recorded_units(before))
    total, records, live = unit_count(run.spec.data), _records(facts), frozenset(pod.name for pod in facts.live)
    known = sum(record.claimed for record in records)
    settled = facts.exhausted and not live and (known >= total or not facts.unseen)
    units = tally(total, records, live, exhausted=facts.exhausted, settled=settled)
    return replace(facts, units=units, settled=settled)


def _records(facts: Facts) -> list[Record]:
    return updated(read_records(facts.before), facts.pods, facts.observed.counts)


def _recorded_units(before: Mapping[str, Any]) -> Units:
    units = before.get("units") or {}
    counts = {name: int(units.get(name, 0)) for name in ("claimed", "consumed", "lost")}
    return Units(**counts, total=max(1, int(units.get("total", 1))))


def _current(facts: Facts) -> Observed:
    return replace(facts.observed, jobs=tuple(facts.jobs), pods=tuple(facts.pods))


def _units(units: Units) -> dict[str, int]:
    return {
        "total": units.total,
        "claimed": units.claimed,
        "consumed": units.consumed,
        "lost": units.lost,
        "percent": units.percent,
    }


def _completion_time(facts: Facts, verdict: Verdict) -> str | None:
    if not verdict.over:
        return None
    return str(facts.before.get("completionTime") or write_time(facts.now))


def _remaining(facts: Facts, records: Iterable[Record]) -> int | None:
    """Units left by the pace of the nodes that run. It stands while no unit is finished, so that nothing is written."""
    if not facts.live:
        return None
    if (facts.before.get("units") or {}) == _units(facts.units) and "estimatedRemainingSeconds" in facts.before:
        return int(facts.before["estimatedRemainingSeconds"])
    consumed = {record.pod: record.consumed for record in records}
    pace = sum(
        consumed[pod.name] / max(1.0, (facts.now - pod.started).total_seconds()) for pod in facts.live if pod.started
    )
    left = max(0, facts.units.total - facts.units.consumed - facts.units.lost)
    return round(left / pace) if pace else None


def _conditions(facts: Facts, verdict: Verdict, stall: Stall | None) -> list[dict[str, Any]]:
    running = verdict.phase == "Running"
    wanted: list[tuple[str, bool, str, str]] = [("Running", running, verdict.reason, verdict.message)]
    if verdict.phase == "Suspended" or condition(facts.before, "Suspended"):
        suspended = verdict.phase == "Suspended"
        wanted.append(("Suspended", suspended, verdict.reason if suspended else "Resumed", verdict.message))
    if stall is not None:
        wanted.append(("Stalled", True, stall.reason, f"{stall.who}: {stall.words}"))
    else:
        words = "no node is to run" if verdict.over or facts.run.suspended else "nothing keeps a node from running"
        wanted.append(("Stalled", False, "AsExpected", words))
    if verdict.over:
        wanted.append(("Complete" if verdict.phase == "Succeeded" else "Failed", True, verdict.reason, verdict.message))
    return [_condition(facts, *item) for item in wanted]


def _condition(facts: Facts, kind: str, true: bool, reason: str, message: str) -> dict[str, Any]:
    status = "True" if true else "False"
    before = condition(facts.before, kind)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:MESSAGE_LIMIT],
        "lastTransitionTime": since or write_time(facts.now),
        "observedGeneration": facts.run.generation,
    }
