"""Taking part in the run that a mailbox's prefix holds, or starting one there."""

from __future__ import annotations

from gradientmail.exits import PrefixInUse
from gradientmail.layout import RUN, UNITS, beat_key
from gradientmail.mailbox import Mailbox
from gradientmail.manifest import ManifestError, dump_manifest, parse_manifest
from gradientmail.patterns.shared_queue import LearnerInUse
from gradientmail.run import GradientRun


def enter_prefix(mailbox: Mailbox, manifest: GradientRun, *, where: str, join: bool = False) -> None:
    """Make sure that the prefix holds this run: write `run.json`, or find it written by a fellow node.

    Another name or task, or claims without a manifest, are another run's: with `join` they are taken
    over. Another data grid is refused even then, because its identifiers mean other data.

    Raises PrefixInUse, naming what was found; and the mailbox's errors, without trying again.
    """
    there = mailbox.get(RUN)
    if there is None and not join and next(iter(mailbox.list(UNITS)), None) is not None:
        there = mailbox.get(RUN)
        if there is None:
            raise PrefixInUse(
                f"mailbox {where!r} holds the claims of another run: use a fresh prefix, or --join to take part in it"
            )
    if there is None and not mailbox.put_if_absent(RUN, dump_manifest(manifest, "json").encode()):
        there = mailbox.get(RUN)
    problem = None if there is None else difference(there, manifest, join=join)
    if problem:
        raise PrefixInUse(f"mailbox {where!r} holds another run: {problem}")


def refuse_used_learner(mailbox: Mailbox, learner_id: str) -> None:
    """Raise LearnerInUse if a process has already used this learner ID under the prefix.

    The queue makes sure of it when it registers the learner; this tells before the task is built and before a
    heartbeat could be mistaken for the other process's.
    """
    if mailbox.get(beat_key(learner_id, 0)) is not None:
        raise LearnerInUse.named(learner_id)


def difference(there: bytes, mine: GradientRun, *, join: bool) -> str | None:
    """Say how the run that is there differs from mine, and what to do; None if I may take part in it."""
    try:
        theirs = parse_manifest(there.decode(), RUN)
    except (UnicodeDecodeError, ManifestError):
        return "its run.json is not a GradientRun; use a fresh prefix"
    if theirs.spec.data != mine.spec.data:
        return (
            f"its data grid is {_grid(theirs)}, this manifest's is {_grid(mine)}; use a fresh prefix, since the same "
            "identifiers mean other data there"
        )
    if join:
        return None
    for name, its, own in (
        ("name", theirs.metadata.name, mine.metadata.name),
        ("task", theirs.spec.trainer.task, mine.spec.trainer.task),
    ):
        if its != own:
            return (
                f"its {name} is {its!r}, this manifest's is {own!r}; use a fresh prefix, or --join to take part in it"
            )
    return None


def _grid(run: GradientRun) -> str:
    data = run.spec.data
    shape = f"{data.steps} steps of {data.batch} in {data.lanes} lanes, {data.unit_steps} steps a unit"
    return f"{shape}, tapered" if data.taper else shape
