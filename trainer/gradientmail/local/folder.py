"""Where a local run's files and its mailbox lie."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from shutil import rmtree

from pydantic import ValidationError

from gradientmail.exits import PrefixInUse, UserError
from gradientmail.layout import ALIVE, RUN, UNITS, left_key
from gradientmail.mailbox import MailboxError, Store
from gradientmail.report.opening import MAILBOX_FOLDER, MAILBOX_NOTE, note
from gradientmail.run import GradientRun, MailboxSpec
from gradientmail.stores import open_url, s3_options
from gradientmail.writing import written_to


@dataclass(frozen=True)
class Place:
    """A run's folder and mailbox."""

    folder: Path
    mailbox: str
    """URL of the run's own prefix."""
    box: Store
    made: bool
    """Whether the folder was made for this run."""

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
    manifest: GradientRun, source: bytes, *, out: Path | None, asked: str | None, join: bool, moment: float
) -> Place:
    """Make the run's folder, which keeps the manifest's text, and see that its mailbox can be reached and is free.

    Raises UserError if the folder cannot be made or the URL asked for is no store's, PrefixInUse if the
    mailbox holds another run's claims and `join` was not asked for, and the mailbox's errors.
    """
    spec = manifest.spec.mailbox
    if asked is not None:
        spec = _with_url(spec, asked)
    token = secrets.token_hex(3)
    for folder in [out] if out else _names(Path("runs") / manifest.metadata.name, stamp(moment)):
        url = mailbox_url(manifest, folder=folder, asked=asked, join=join, moment=moment, token=token)
        place = Place(folder, url, open_url(url, s3_options(spec)), made=not folder.exists())
        check_free(place.box, url, join=join)
        with written_to(folder, "give another folder with --out"):
            if _made(folder, afresh=out is None):
                _fill(place, source, spec)
                return place
    raise AssertionError("names have no end")


def _fill(place: Place, source: bytes, spec: MailboxSpec | None) -> None:
    place.nodes.mkdir(exist_ok=True)
    place.manifest.write_bytes(source)
    if spec:
        note(place.folder, spec.model_copy(update={"url": place.mailbox}))
    else:
        (place.folder / MAILBOX_NOTE).unlink(missing_ok=True)  # that of a run before, which kept its mailbox elsewhere


def withdraw(place: Place, learners: Iterable[str]) -> None:
    """Remove what a run in which nothing was claimed has left, so that its corrected manifest may use the place.

    What others have written stays, and with it the manifest and the folder; so does a folder that was there before.
    A store that fails leaves things as they are.
    """
    box = place.box
    with suppress(MailboxError):
        if next(iter(box.list(UNITS)), None) is not None:
            return
        beats = [key for learner in learners for key in box.list(f"{ALIVE}{learner}/")]
        box.delete([*beats, *map(left_key, learners)])
        if list(islice(box.list(), 2)) == [RUN]:
            box.delete([RUN])
        if place.made and next(iter(box.list()), None) is None:
            rmtree(place.folder, ignore_errors=True)


def _with_url(spec: MailboxSpec | None, asked: str) -> MailboxSpec:
    fields = spec.model_dump(by_alias=True) if spec else {}
    try:
        return MailboxSpec.model_validate({**fields, "url": asked})
    except ValidationError:
        raise UserError(
            f"--mailbox is {asked!r}: expected s3://BUCKET/PREFIX or file:///FOLDER, which all nodes can reach"
        ) from None


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


def _names(parent: Path, name: str) -> Iterator[Path]:
    """Yield folders that are not there yet: several runs may start within one second."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return (folder for each in names if not (folder := parent / each).exists())


def _made(folder: Path, *, afresh: bool) -> bool:
    """Make the folder; False if another run made it first and it was to be made afresh."""
    try:
        folder.mkdir(parents=True, exist_ok=not afresh)
    except FileExistsError:
        if afresh:
            return False
        raise
    return True
