"""A report as files: a record for programs, a page, and the timeline as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gradientmail.plain_json import dumps
from gradientmail.report.page import View, report_page
from gradientmail.report.picture import draw
from gradientmail.writing import written_to


@dataclass(frozen=True)
class Files:
    """Where each form of a report is written; None leaves it out."""

    json: Path | None = None
    html: Path | None = None
    png: Path | None = None
    svg: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path, *, picture: bool) -> Self:
        """Return all forms in a folder, the timeline's two only with `picture`."""
        png, svg = (folder / "timeline.png", folder / "timeline.svg") if picture else (None, None)
        return cls(folder / "report.json", folder / "report.html", png, svg)

    @property
    def pictures(self) -> dict[str, Path]:
        """The timeline's files by format."""
        return {form: path for form, path in (("png", self.png), ("svg", self.svg)) if path}

    @property
    def texts(self) -> dict[Path, Callable[[View], str]]:
        """What writes each of the other files."""
        forms = ((self.json, _record), (self.html, report_page))
        return {path: form for path, form in forms if path}

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return [*self.texts, *self.pictures.values()]


def write(view: View, files: Files, advice: str) -> list[Path]:
    """Write the files, their folders made if need be, and return their paths.

    Raises UserError, which ends in `advice`, for a file that cannot be written, and PictureNotPossible; the record and
    the page are there even then.
    """
    for path, text in files.texts.items():
        with written_to(path, advice):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(view), encoding="utf-8")
    if files.pictures:
        draw(view.figures, files.pictures, advice)
    return files.paths


def _record(view: View) -> str:
    return dumps(view.figures.to_dict(), indent=2) + "\n"
