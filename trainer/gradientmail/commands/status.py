"""`gradientmail status`: where a run stands, from its mailbox alone."""

from __future__ import annotations

from typing import Annotated

import typer

from gradientmail.commands import options
from gradientmail.plain_json import dumps
from gradientmail.report.opening import read_named
from gradientmail.report.status import run_status
from gradientmail.report.table import console, status_text
from gradientmail.runstate import SILENT_AFTER_SECONDS

MOST_RECEIPTS = 10_000
"""Receipts read without --exact: at most some seconds on S3."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    run: Annotated[str, typer.Argument(metavar="URL|FOLDER", help="A run's folder, or the URL of its mailbox.")],
    exact: Annotated[bool, typer.Option("--exact", help="Read every receipt, however many there are.")] = False,
    silent_after: options.SilentAfter = SILENT_AFTER_SECONDS,
    endpoint_url: options.EndpointURL = None,
    region: options.Region = None,
    checksums: options.WithChecksums = options.Checksums.WHEN_SUPPORTED,
    addressing: options.WithAddressing = options.Addressing.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say where a run stands: units claimed, consumed and lost, a line per node, and the time left."""
    most = None if exact else MOST_RECEIPTS
    s3 = options.s3_of(endpoint_url, region, checksums, addressing)
    state = read_named(run, s3, most_receipts=most)
    standing = run_status(state, silent_after=silent_after)
    if as_json:
        typer.echo(dumps(standing.to_dict(), indent=2))
    else:
        console().print(status_text(standing))
