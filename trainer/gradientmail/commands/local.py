"""`gradientmail local`: a whole run on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gradientmail.exits import Exit
from gradientmail.local.run import LocalOptions, run_here
from gradientmail.local.screen import LiveScreen, PlainScreen, Screen
from gradientmail.local.summary import summary_text
from gradientmail.manifest import manifest_bytes, manifest_of
from gradientmail.report.table import console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(local)


def local(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GradientRun manifest.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the run; else runs/NAME/TIME, made afresh.")
    ] = None,
    mailbox: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Keep the mailbox under a fresh prefix below this s3:// or file:// URL."),
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Take part in the run whose prefix --mailbox (or --out) names.")
    ] = False,
    picture: Annotated[bool, typer.Option(help="Draw the timeline at the end.")] = True,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live screen.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; progress goes to standard error.")
    ] = False,
) -> None:
    """Run a manifest's nodes on this machine, a process each, over one shared queue.

    Ends with 0 if every unit was trained, 5 if units were lost, 2 for what has to be corrected, 130 or 143 after
    SIGINT or SIGTERM. If all nodes fail with one code, that is the code: 3 if the store stayed unreachable, else 1.
    """
    source = manifest_bytes(file)
    manifest = manifest_of(source, str(file))
    out_console = console(stderr=as_json)
    live = out_console.is_terminal and not plain
    screen: Screen = LiveScreen(manifest.metadata.name, out_console) if live else PlainScreen(out_console)
    summary = run_here(manifest, source, LocalOptions(out, mailbox, join, picture), screen)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=2))
    else:
        out_console.print(summary_text(summary))
    if summary.exit is not Exit.OK:
        raise typer.Exit(int(summary.exit))
