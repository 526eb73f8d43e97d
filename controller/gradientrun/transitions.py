"""What a person would want to read in `kubectl describe`: the difference between two statuses, as events. Pure.

Derived from the status as it was and as it has been written, so that each change is told once,
whatever restarts in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradientrun.verdict import condition

NODES_TOLD = 5
"""Node failures told one by one in one go."""


@dataclass(frozen=True, slots=True)
class Note:
    """One event about a run."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
    node: str = ""
    """The node that it is about, if it is about one."""


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Note]:
    """Return what has happened between two statuses of a run."""
    if before.get("attempt") != after.get("attempt"):
        before = {}
    return [*_accepted(before, after), *_nodes(before, after), *_lost(before, after), *_conditions(before, after)]


def _accepted(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    if not before.get("mailboxPrefix") and after.get("mailboxPrefix"):
        yield Note("Normal", "Accepted", f"attempt {after['attempt']} has the mailbox {after['mailboxPrefix']}")


def _nodes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    if before.get("phase") in ("Succeeded", "Failed"):
        return
    earlier = {node["name"]: node for node in before.get("nodes") or []}
    notes = [note for node in after.get("nodes") or [] for note in _node(earlier.get(node["name"], {}), node)]
    yield from notes[:NODES_TOLD]
    if len(notes) > NODES_TOLD:
        yield Note("Warning", "NodeFailed", f"and {len(notes) - NODES_TOLD} more nodes")


def _node(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    name, words = after["name"], after.get("message") or before.get("message") or "no reason is known"
    if after["phase"] == "Failed" and before.get("phase") != "Failed":
        given_up = f"node {name} is given up after {after.get('restarts', 0)} restarts: {words}"
        yield Note("Warning", "NodeGivenUp", given_up, name)
    elif after.get("restarts", 0) > before.get("restarts", 0):
        yield Note("Warning", "NodeRestarted", f"node {name}, restart {after['restarts']}: {words}", name)


def _lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    lost = after.get("units", {}).get("lost", 0)
    more = lost - before.get("units", {}).get("lost", 0)
    if more > 0:
        words = f"units lost with the nodes that had claimed them: {more} more, {lost} in all"
        yield Note("Warning", "UnitsLost", words)


def _conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    for kind, when_true in (("Running", "Running"), ("Suspended", "Suspended"), ("Complete", "Succeeded")):
        if _became(before, after, kind, "True"):
            yield Note("Normal", when_true, condition(after, kind)["message"])
    if after.get("phase") == "Pending" and condition(before, "Running").get("status") == "True":
        waiting = condition(after, "Running")
        yield Note("Normal" if waiting["reason"] == "QueuedAgain" else "Warning", waiting["reason"], waiting["message"])
    if _became(before, after, "Suspended", "False"):
        yield Note("Normal", "Resumed", condition(after, "Suspended")["message"])
    if _became(before, after, "Failed", "True"):
        failed = condition(after, "Failed")
        yield Note("Warning", failed["reason"], failed["message"])
    stalled = condition(after, "Stalled")
    if stalled.get("status") == "True" and stalled["reason"] != _stalled_reason(before):
        yield Note("Warning", stalled["reason"], stalled["message"])


def _stalled_reason(status: Mapping[str, Any]) -> str | None:
    stalled = condition(status, "Stalled")
    return stalled.get("reason") if stalled.get("status") == "True" else None


def _became(before: Mapping[str, Any], after: Mapping[str, Any], kind: str, status: str) -> bool:
    return condition(after, kind).get("status") == status != condition(before, kind).get("status")
