"""A report as files: report.json, timeline.png, timeline.svg."""

from __future__ import annotations

import json
from pathlib import Path

from gradientmail.report.figures import RunFigures
from gradientmail.report.picture import draw

REPORT = "report.json"


def write(figures: RunFigures, folder: Path, *, picture: bool) -> list[Path]:
    """Write the report, and the timeline if wanted, into a folder, made if need be; return the paths.

    The report is there even where PictureNotPossible is raised.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / REPORT
    record.write_text(json.dumps(figures.to_dict(), indent=2) + "\n", encoding="utf-8")
    return [record, *(draw(figures, folder) if picture else [])]
