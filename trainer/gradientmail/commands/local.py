"""`gradientmail local`: a whole run on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gradientmail.exits import Exit
from gradientmail.local.run import LocalOptions, run_here, wait_for_a_signal
from gradientmail.local.screen import LiveScreen, PlainScreen, Screen
from gradientmail.local.serving import Address, address_of
from gradientmail.local.summary import summary_text
from gradientmail.manifest import manifest_bytes, manifest_of
from gradientmail.plain_json import dumps
from gradientmail.report.table import console

STAYS = "the page and the metrics stay until Ctrl-C"


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
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help=f"Serve a live page, and the metrics of all nodes, at {Address()} while the run lasts."
        ),
    ] = False,
    serve_at: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Serve there instead; port 0 is any free one.")
    ] = None,
    keep_serving: Annotated[
        bool,
        typer.Option(
            "--keep-serving",
            help="Serve, and go on with it once the run has ended, until Ctrl-C: Prometheus then sees the last counts.",
        ),
    ] = False,
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
    address = address_of(serve_at) if serve_at is not None else Address() if serve or keep_serving else None
    with ExitStack() as open_until:
        summary = run_here(manifest, source, LocalOptions(out, mailbox, join, picture, address), screen, open_until)
        if as_json:
            typer.echo(dumps(summary.to_dict(), indent=2))
        else:
            out_console.print(summary_text(summary))
        if keep_serving and summary.exit not in (Exit.INTERRUPTED, Exit.TERMINATED):
            wait_for_a_signal(lambda: out_console.print(STAYS))
    if summary.exit is not Exit.OK:
        raise typer.Exit(int(summary.exit))
