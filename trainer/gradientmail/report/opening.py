"""From what a person names, a folder or a URL, to the mailbox of a run that is there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from gradientmail.bulk import Seen, unseen
from gradientmail.exits import UserError
from gradientmail.mailbox import S3Options, Store
from gradientmail.run import MailboxSpec
from gradientmail.runstate import NotARun, RunState, read_run
from gradientmail.stores import open_url, s3_options

MAILBOX_FOLDER = "mailbox"
"""Mailbox of a run in the folder that `gradientmail local` made."""
MAILBOX_NOTE = "mailbox.yaml"
"""Where that mailbox is instead, if the run used another store: a `spec.mailbox` whose url is the run's prefix."""


def open_run(target: str, s3: S3Options | None = None) -> Store:
    """Open the mailbox at a URL, in a run's folder, or in a mailbox folder. Makes no request.

    `s3` says how to reach the store at a URL; what a run's folder has noted of its own comes first.
    Raises UserError if there is no such folder or the URL is not understood.
    """
    if "://" in target or target.startswith("memory:"):
        _check_folder(target)
        return open_url(target, s3 or S3Options())
    folder = Path(target)
    if not folder.is_dir():
        raise UserError(f"there is no folder {target!r}: give a run's folder, its mailbox folder, or a mailbox URL")
    if (folder / MAILBOX_NOTE).is_file():
        return _open_noted(folder / MAILBOX_NOTE)
    inside = folder / MAILBOX_FOLDER
    return open_url((inside if inside.is_dir() else folder).resolve().as_uri(), S3Options())


def read_named(
    target: str,
    s3: S3Options | None = None,
    *,
    most_receipts: int | None = None,
    processes: int = 1,
    seen: Seen = unseen,
) -> RunState:
    """Read the run that a person names, as `read_run` does. Raises UserError, naming the target, too."""
    box = open_run(target, s3)
    try:
        return read_run(box, most_receipts=most_receipts, processes=processes, seen=seen)
    except NotARun as error:
        raise NotARun(f"{target!r} {error}") from None


def own_folder(target: str) -> Path | None:
    """Return the target if it is a folder that `gradientmail local` made."""
    folder = Path(target)
    made = (folder / MAILBOX_NOTE).is_file() or (folder / MAILBOX_FOLDER).is_dir()
    return folder if "://" not in target and made else None


def note(folder: Path, spec: MailboxSpec) -> None:
    """Note in a run's folder that its mailbox is elsewhere."""
    text = yaml.safe_dump(spec.model_dump(by_alias=True, exclude_none=True), sort_keys=False)
    (folder / MAILBOX_NOTE).write_text(text, encoding="utf-8")


def _open_noted(path: Path) -> Store:
    try:
        spec = MailboxSpec.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} does not say where the run's mailbox is: give the mailbox URL instead") from error
    return open_url(spec.url, s3_options(spec))


def _check_folder(url: str) -> None:
    path = unquote(urlsplit(url).path)
    if url.startswith("file:") and not Path(path).is_dir():
        raise UserError(f"there is no folder {path!r}: give the mailbox URL that the run itself names")
