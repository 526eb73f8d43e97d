"""`gradientmail report`: who trained what when, as a table, JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradientmail.report.figures import figures
from gradientmail.report.opening import open_run
from gradientmail.report.table import report_text
from gradientmail.report.writing import write
from gradientmail.runstate import SILENT_AFTER_SECONDS, read_run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    run: Annotated[str, typer.Argument(metavar="URL|FOLDER", help="A run's folder, or the URL of its mailbox.")],
    out: Annotated[Path, typer.Option(help="Folder for report.json, timeline.png and timeline.svg.")] = Path(),
    picture: Annotated[bool, typer.Option(help="Draw the timeline.")] = True,
    silent_after: Annotated[
        float, typer.Option(min=0.0, help="Seconds without a heartbeat after which a node is taken for dead.")
    ] = SILENT_AFTER_SECONDS,
    endpoint_url: Annotated[str | None, typer.Option(help="Endpoint of an S3-compatible store.")] = None,
    region: Annotated[str | None, typer.Option(help="Region of the bucket.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Say who trained what when: a table, report.json, and the timeline as a picture."""
    box = open_run(run, endpoint_url=endpoint_url, region=region)
    result = figures(read_run(box), silent_after=silent_after)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        Console(highlight=False, soft_wrap=True).print(report_text(result))
    for path in write(result, out, picture=picture):
        typer.echo(f"wrote {path}", err=True)
