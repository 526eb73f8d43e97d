"""Events that follow from two statuses, each told once."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from gradientmail.run_status import RunPhase
from gradientrun.transitions import Note, transitions

QUIET: dict[str, Any] = {"attempt": 1, "mailboxPrefix": "s3://b/p", "units": {"lost": 0}, "nodes": [], "conditions": []}


def status(**changes: Any) -> dict[str, Any]:
    return QUIET | changes


def condition(kind: str, held: bool = True, reason: str = "Reason", message: str = "words") -> dict[str, Any]:
    return {"type": kind, "status": "True" if held else "False", "reason": reason, "message": message}


def node(phase: str = "Running", restarts: int = 0, message: str | None = None) -> dict[str, Any]:
    return {"name": "fast-0", "phase": phase, "restarts": restarts} | ({"message": message} if message else {})


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        ({}, status(), [Note("Normal", "Accepted", "attempt 1 has the mailbox s3://b/p")]),
        (status(), status(attempt=2, mailboxPrefix="s3://b/q"),
         [Note("Normal", "Accepted", "attempt 2 has the mailbox s3://b/q")]),
        (status(), status(), []),
        (status(), status(conditions=[condition("Running")]), [Note("Normal", "Running", "words")]),
        (status(conditions=[condition("Running")]), status(conditions=[condition("Running", message="more")]), []),
        (status(phase="Running", conditions=[condition("Running")]),
         status(phase="Pending", conditions=[condition("Running", False, "WaitingForNodes", "none runs")]),
         [Note("Warning", "WaitingForNodes", "none runs")]),
        (status(phase="Running", conditions=[condition("Running")]),
         status(phase="Pending", conditions=[condition("Running", False, "QueuedAgain", "waiting for Kueue")]),
         [Note("Normal", "QueuedAgain", "waiting for Kueue")]),
        (status(phase="Pending", conditions=[condition("Running", False, "Starting")]),
         status(phase="Pending", conditions=[condition("Running", False, "WaitingForNodes")]), []),
        (status(), status(conditions=[condition("Complete")]), [Note("Normal", "Succeeded", "words")]),
        (status(), status(conditions=[condition("Failed", reason="NodesFailed")]),
         [Note("Warning", "NodesFailed", "words")]),
        (status(), status(conditions=[condition("Suspended")]), [Note("Normal", "Suspended", "words")]),
        (status(conditions=[condition("Suspended")]), status(conditions=[condition("Suspended", False)]),
         [Note("Normal", "Resumed", "words")]),
        (status(), status(conditions=[condition("Stalled", reason="Unschedulable")]),
         [Note("Warning", "Unschedulable", "words")]),
        (status(conditions=[condition("Stalled", reason="A")]), status(conditions=[condition("Stalled", reason="A")]),
         []),
        (status(conditions=[condition("Stalled", reason="A")]), status(conditions=[condition("Stalled", reason="B")]),
         [Note("Warning", "B", "words")]),
        (status(conditions=[condition("Stalled", reason="A")]), status(conditions=[condition("Stalled", False)]), []),
        (status(), status(units={"lost": 3}),
         [Note("Warning", "UnitsLost", "units lost with the nodes that had claimed them: 3 more, 3 in all")]),
        (status(nodes=[node()]), status(nodes=[node(restarts=1, message="boom")]),
         [Note("Warning", "NodeRestarted", "node fast-0, restart 1: boom", "fast-0")]),
        (status(nodes=[node(message="boom")]), status(nodes=[node("Failed", 3)]),
         [Note("Warning", "NodeGivenUp", "node fast-0 is given up after 3 restarts: boom", "fast-0")]),
        (status(nodes=[node("Failed", 3)]), status(nodes=[node("Failed", 3)]), []),
    ],
)  # fmt: skip
def test_what_is_told(before: dict[str, Any], after: dict[str, Any], notes: list[Note]) -> None:
    assert transitions(before, after) == notes


def test_many_failing_nodes_are_summed_up() -> None:
    nodes = [{"name": f"fast-{index}", "phase": "Failed", "restarts": 0} for index in range(8)]
    told = transitions(status(), status(nodes=nodes))
    assert len(told) == 6
    assert told[-1] == Note("Warning", "NodeFailed", "and 3 more nodes")


PHASES_TOLD = {
    "Running": "Running",
    "Suspended": "Suspended",
    "Succeeded": "Succeeded",
    "Failed": "NodesFailed",
    "Pending": "WaitingForNodes",
}


@pytest.mark.parametrize("phase", get_args(RunPhase))
def test_every_change_of_the_phase_is_told(phase: RunPhase) -> None:
    kinds = {"Suspended": "Suspended", "Succeeded": "Complete", "Failed": "Failed"}
    earlier = "Pending" if phase == "Running" else "Running"
    before = status(phase=earlier, conditions=[condition("Running", earlier == "Running")])
    reason = PHASES_TOLD[phase]
    conditions = [condition("Running", phase == "Running", reason)]
    conditions += [condition(kinds[phase], True, reason)] if phase in kinds else []
    assert [note.reason for note in transitions(before, status(phase=phase, conditions=conditions))] == [reason]
