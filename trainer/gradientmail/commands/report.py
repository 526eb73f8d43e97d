"""`gradientmail report`: who trained what when, as a table, JSON, a page and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from gradientmail.bulk import Seen
from gradientmail.commands import options
from gradientmail.local.machine import usable_cores
from gradientmail.plain_json import dumps
from gradientmail.report.opening import own_folder, read_named
from gradientmail.report.page import View
from gradientmail.report.picture import check_can_draw
from gradientmail.report.table import console, report_text
from gradientmail.report.writing import Files, write
from gradientmail.runstate import SILENT_AFTER_SECONDS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    run: Annotated[str, typer.Argument(metavar="URL|FOLDER", help="A run's folder, or the URL of its mailbox.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write all forms; else the run's folder, or this one if a URL is given. Nowhere if single "
            "files are named below.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one page that opens offline.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the timeline as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the timeline as PNG.")] = None,
    picture: Annotated[bool, typer.Option(help="Draw the timeline into the folder.")] = True,
    silent_after: options.SilentAfter = SILENT_AFTER_SECONDS,
    endpoint_url: options.EndpointURL = None,
    region: options.Region = None,
    checksums: options.WithChecksums = options.Checksums.WHEN_SUPPORTED,
    addressing: options.WithAddressing = options.Addressing.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Say who trained what when: a table, report.json, report.html, and the timeline as a picture.

    Reads the mailbox of a finished or a running run and nothing else: a listing of its claims and receipts, and every
    receipt, 16 at a time; if there are 20,000 or more, 16 at a time for each core.
    """
    named = Files(html=html, svg=svg, png=png)
    wanted = [(named, "give another file")]
    if out or not named.paths:
        folder = Files.of_folder(out or own_folder(run) or Path(), picture=picture)
        wanted.append((folder, "give another folder with --out"))
    if any(files.pictures for files, _ in wanted):
        check_can_draw()
    s3 = options.s3_of(endpoint_url, region, checksums, addressing)
    with _reading() as seen:
        state = read_named(run, s3, processes=usable_cores(), seen=seen)
    view = View.of(state, silent_after=silent_after)
    if as_json:
        typer.echo(dumps(view.figures.to_dict(), indent=2))
    else:
        console().print(report_text(view.figures))
    written = [path for files, advice in wanted for path in write(view, files, advice)]
    for path in written:
        typer.echo(f"wrote {path}", err=True)


@contextmanager
def _reading() -> Iterator[Seen]:
    """Show at a terminal how far the receipts are read, until the block ends."""
    with Progress(
        console=console(stderr=True), transient=True, disable=not console(stderr=True).is_terminal
    ) as progress:
        task = progress.add_task("reading receipts", total=None)
        yield lambda done, every: progress.update(task, completed=done, total=every)
