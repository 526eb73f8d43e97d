"""`gradientmail report`: who trained what when, as a table, JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gradientmail.report.figures import figures
from gradientmail.report.opening import own_folder, read_named
from gradientmail.report.table import console, report_text
from gradientmail.report.writing import write
from gradientmail.runstate import SILENT_AFTER_SECONDS
from gradientmail.writing import written_to


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    run: Annotated[str, typer.Argument(metavar="URL|FOLDER", help="A run's folder, or the URL of its mailbox.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write; else the run's folder, or this one if a URL is given."),
    ] = None,
    picture: Annotated[bool, typer.Option(help="Draw the timeline.")] = True,
    silent_after: Annotated[
        float, typer.Option(min=0.0, help="Seconds without a heartbeat after which a node is taken for dead.")
    ] = SILENT_AFTER_SECONDS,
    endpoint_url: Annotated[str | None, typer.Option(help="Endpoint of an S3-compatible store.")] = None,
    region: Annotated[str | None, typer.Option(help="Region of the bucket.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Say who trained what when: a table, report.json, and the timeline as a picture."""
    state = read_named(run, endpoint_url=endpoint_url, region=region)
    result = figures(state, silent_after=silent_after)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        console().print(report_text(result))
    folder = out or own_folder(run) or Path()
    with written_to(folder, "give another folder with --out"):
        files = write(result, folder, picture=picture)
    for path in files:
        typer.echo(f"wrote {path}", err=True)
