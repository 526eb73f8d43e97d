"""How the nodes ended, and the exit code that follows. Pure but for reading termination messages."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradientmail.exits import Exit
from gradientmail.local.watching import NodeView
from gradientmail.progress import NodeProgress

ERROR_PREFIX = "gradientmail: "


@dataclass(frozen=True, slots=True)
class End:
    """How one node ended."""

    node: str
    learner: str
    code: int
    """Exit code; minus the signal's number if a signal ended it."""
    message: str
    """Why it failed, in one sentence; empty if it did not."""

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by finishing or by being asked to leave."""
        return self.code not in (Exit.OK, Exit.TERMINATED, Exit.INTERRUPTED)

    @property
    def word(self) -> str:
        """One word for a table."""
        if self.code == Exit.OK:
            return "finished"
        if self.code < 0:
            return "killed"
        return "failed" if self.failed else "stopped"


def end_of(view: NodeView, code: int, termination_message: Path) -> End:
    """Return how a node ended: in its own last words if it had any."""
    end = End(view.node, view.learner, code, "")
    if not end.failed:
        return end
    if code < 0:
        return End(view.node, view.learner, code, f"killed by {_signal_name(-code)}")
    message = _termination_message(termination_message, view.learner) or _last_words(view.last_words)
    return End(view.node, view.learner, code, message or f"ended with exit code {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _termination_message(path: Path, learner: str) -> str:
    try:
        word = NodeProgress.from_json(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return ""
    return word.message if word.learner == learner else ""


def _last_words(lines: Sequence[str]) -> str:
    said = [line for line in lines if line.strip()]
    own = [line.removeprefix(ERROR_PREFIX) for line in said if line.startswith(ERROR_PREFIX)]
    return (own or said or [""])[-1].strip()


def hopeless(ends: Sequence[End], consumed: int) -> End | None:
    """Return the node whose mistake all share: a configuration error before anything was trained."""
    return next((end for end in ends if end.code == Exit.CONFIGURATION), None) if consumed == 0 else None


def exit_code(ends: Sequence[End], *, missing: int, stopped_by: signal.Signals | None) -> Exit:
    """Return the run's exit code. `missing` units have not been trained and will not be.

    A signal to this process comes first; then the code that all nodes agree on, if they all failed; then INCOMPLETE.
    """
    if stopped_by is not None:
        return Exit.INTERRUPTED if stopped_by == signal.SIGINT else Exit.TERMINATED
    codes = {end.code for end in ends if end.failed}
    if missing and len(codes) == 1 and all(end.failed for end in ends) and (code := codes.pop()) in list(Exit):
        return Exit(code)
    return Exit.INCOMPLETE if missing else Exit.OK


def failures(ends: Sequence[End]) -> list[tuple[list[str], str]]:
    """Return each failure once, with the nodes that had it."""
    nodes: dict[str, list[str]] = {}
    for end in ends:
        if end.failed:
            nodes.setdefault(end.message, []).append(end.node)
    return [(names, message) for message, names in nodes.items()]
