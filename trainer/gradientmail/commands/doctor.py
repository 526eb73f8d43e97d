"""`gradientmail doctor URL`: may this store hold a shared queue?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gradientmail.commands import options
from gradientmail.exits import Exit
from gradientmail.mailbox import Store
from gradientmail.mailbox.probe import Check, Report, examine
from gradientmail.stores import open_url

STYLES = {"passed": "green", "failed": "bold red", "denied": "bold red", "warning": "yellow", "skipped": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    url: Annotated[str, typer.Argument(metavar="URL", help="s3://BUCKET/PREFIX or file:///FOLDER")],
    endpoint_url: options.EndpointURL = None,
    region: options.Region = None,
    checksums: options.WithChecksums = options.Checksums.WHEN_SUPPORTED,
    addressing: options.WithAddressing = options.Addressing.AUTO,
    keys: Annotated[int, typer.Option(min=1, help="How many keys are raced for.")] = 32,
    racers: Annotated[int, typer.Option(min=2, help="How many writers race for each key.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check that a store may hold a shared queue, by trying everything that the queue relies on.

    Works under a scratch prefix and removes it afterwards. Credentials come from the environment, as for every S3
    client. Exit codes: 0 suitable; 2 wrong URL, credentials, bucket or permission; 3 no answer; 4 unsuitable.
    """
    s3 = options.s3_of(endpoint_url, region, checksums, addressing)
    try:
        report = _examined(open_url(url, s3), keys, racers, quiet=as_json)
    except KeyboardInterrupt:
        print("gradientmail: interrupted; what the doctor wrote has been removed", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    if as_json:
        print(json.dumps({"url": url, "suitable": report.suitable, **asdict(report)}, indent=2))
    else:
        _show(Console(), url, report)
    raise typer.Exit(exit_code(report))


def exit_code(report: Report) -> Exit:
    """Return the exit code: a missing guarantee outweighs a missing permission."""
    results = {check.result for check in report.checks}
    if "failed" in results:
        return Exit.UNSUITABLE
    return Exit.CONFIGURATION if "denied" in results else Exit.OK


def _examined(store: Store, keys: int, racers: int, *, quiet: bool) -> Report:
    if quiet:
        return examine(store, keys=keys, racers=racers)
    with Console(stderr=True).status("checking that every verb is permitted") as status:

        def show(check: Check) -> None:
            status.update(f"{check.name}: {check.result}; next check is under way")

        return examine(store, keys=keys, racers=racers, on_check=show)


def _show(console: Console, url: str, report: Report) -> None:
    console.print(_checks_table(report))
    console.print(_latency_table(report))
    if report.suitable:
        console.print(f"{url} may hold a shared queue.", markup=False, soft_wrap=True)
    elif exit_code(report) is Exit.UNSUITABLE:
        console.print(f"{url} is unusable: it must not hold a shared queue.", markup=False, soft_wrap=True)
    else:
        console.print(f"{url} lacks permissions; grant them and check again.", markup=False, soft_wrap=True)


def _checks_table(report: Report) -> Table:
    table = Table("check", "result", Column("detail", overflow="fold"), title="What the shared queue relies on")
    for check in report.checks:
        table.add_row(check.name, f"[{STYLES[check.result]}]{check.result}[/]", Text(check.detail))
    return table


def _latency_table(report: Report) -> Table:
    table = Table("verb", "requests", "median ms", "95th percentile ms", title="How long one request takes")
    for latency in report.latencies:
        median, p95 = latency.median_seconds * 1000, latency.p95_seconds * 1000
        table.add_row(latency.operation, str(latency.requests), f"{median:.1f}", f"{p95:.1f}")
    return table
