"""Where a local run's files and its mailbox lie."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gradientmail.exits import PrefixInUse, UserError
from gradientmail.layout import RUN, UNITS
from gradientmail.mailbox import Store
from gradientmail.report.opening import MAILBOX_FOLDER, note
from gradientmail.run import GradientRun, MailboxSpec
from gradientmail.stores import open_url, s3_options


@dataclass(frozen=True)
class Place:
    """A run's folder and mailbox."""

    folder: Path
    mailbox: str
    """URL of the run's own prefix."""
    box: Store

    @property
    def nodes(self) -> Path:
        """Folder of the nodes' logs and last words."""
        return self.folder / "nodes"

    @property
    def manifest(self) -> Path:
        """The manifest as it was when the run started."""
        return self.folder / "manifest.yaml"


def stamp(moment: float) -> str:
    """Return a moment (seconds since the epoch) as a name: `20260131T120000Z`."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))


def mailbox_url(
    manifest: GradientRun, *, folder: Path, asked: str | None, join: bool, moment: float, token: str
) -> str:
    """Return the URL of the run's own prefix. Pure.

    A folder of the run, unless the manifest or the command line names a store: then a fresh prefix below that
    URL, or with `join` that very URL.
    """
    spec = manifest.spec.mailbox
    if join and asked is None and spec is not None:
        raise UserError(
            "--join needs the prefix of the run to join: give it with --mailbox, as that run's own summary names it"
        )
    base = asked or (spec.url if spec else None)
    if base is None:
        return (folder / MAILBOX_FOLDER).resolve().as_uri()
    metadata = manifest.metadata
    fresh = f"{base.rstrip('/')}/{metadata.namespace}/{metadata.name}/{stamp(moment)}-{token}"
    return base if join else fresh


def prepare(
    manifest: GradientRun, source: Path, *, out: Path | None, asked: str | None, join: bool, moment: float
) -> Place:
    """Make the run's folder and see that its mailbox can be reached and is free.

    Raises UserError if the folder cannot be made, PrefixInUse if the mailbox holds another run's claims and
    `join` was not asked for, and the mailbox's errors.
    """
    folder = out or _unused(Path("runs") / manifest.metadata.name, stamp(moment))
    url = mailbox_url(manifest, folder=folder, asked=asked, join=join, moment=moment, token=secrets.token_hex(3))
    spec = manifest.spec.mailbox
    place = Place(folder, url, open_url(url, s3_options(spec)))
    check_free(place.box, url, join=join)
    _make(place.nodes)
    place.manifest.write_bytes(source.read_bytes())
    if asked or spec:
        note(folder, (spec or MailboxSpec(url=url)).model_copy(update={"url": url}))
    return place


def check_free(box: Store, url: str, *, join: bool) -> None:
    """Raise PrefixInUse if the mailbox holds claims, or with `join` UserError if it holds no run. Asks the store."""
    claimed = next(iter(box.list(UNITS)), None) is not None
    if join and not claimed and box.get(RUN) is None:
        raise UserError(
            f"mailbox {url!r} holds no run to join: give its prefix with --mailbox, or its folder with --out; "
            "or leave --join away to start a run"
        )
    if claimed and not join:
        raise PrefixInUse(
            f"mailbox {url!r} holds the claims of another run: leave --out away for a fresh folder, "
            "or give --join to take part in that run"
        )


def _unused(parent: Path, name: str) -> Path:
    """Return a folder that is not there yet: two runs may start within one second."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(folder for each in names if not (folder := parent / each).exists())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder {str(folder)!r} cannot be made ({error.strerror}): give another with --out") from error
