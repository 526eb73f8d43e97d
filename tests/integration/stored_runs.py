"""Runs written to a mailbox as their nodes would have, and the command line that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from gradientmail.cli import application, explained
from gradientmail.layout import beat_key, left_key, receipt_key
from gradientmail.mailbox import Mailbox
from gradientmail.runstate import RunState


def objects(run: RunState) -> Iterator[tuple[str, str]]:
    """Yield key and text of each object that the nodes of a run would have written."""
    assert run.manifest is not None
    assert run.receipts is not None
    yield "run.json", run.manifest.model_dump_json(by_alias=True)
    for identifier, receipt in run.receipts.items():
        yield f"units/{identifier}", receipt.learner
        yield receipt_key(identifier), receipt.to_json()
    for identifier, owner in run.owners.items():
        yield f"units/{identifier}", owner
    for learner in run.learners.values():
        assert learner.progress is not None
        yield beat_key(learner.name, 3), learner.progress.to_json()
        if learner.left:
            yield left_key(learner.name), learner.progress.to_json()


def stored(box: Mailbox, run: RunState) -> None:
    """Write a run into a mailbox."""
    for key, text in objects(run):
        box.put_if_absent(key, text.encode())


def stored_at_once(folder: Path, run: RunState) -> None:
    """Write a large run into a mailbox folder, without waiting for the disk at each object as a mailbox does."""
    for key, text in objects(run):
        path = folder / (key if "." in key else f"{key}.")  # so that it is no folder's name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def called(*arguments: str) -> tuple[int, str]:
    """Return exit code and output of a command line, errors told as the command does."""
    result = CliRunner().invoke(application(), arguments)
    told = explained(result.exception) if result.exception else None
    return (int(told[1]), told[0]) if told else (result.exit_code, result.output)
