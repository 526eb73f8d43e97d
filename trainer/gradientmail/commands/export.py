"""`gradientmail export`: a run's model as one safetensors file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gradientmail.commands import options
from gradientmail.exits import UserError
from gradientmail.report.opening import open_run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    run: Annotated[str, typer.Argument(metavar="URL|FOLDER", help="A run's folder, or the URL of its mailbox.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the model, FILE.safetensors.")],
    endpoint_url: options.EndpointURL = None,
    region: options.Region = None,
    checksums: options.WithChecksums = options.Checksums.WHEN_SUPPORTED,
    addressing: options.WithAddressing = options.Addressing.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a run's model to a file: the final one, or while the run goes on the newest versions put together.

    A model put together has the exchanged parameters alone; buffers and frozen parameters are in the final one.
    """
    from gradientmail.exchange.assembling import NoExchange, metadata_of, newest_model

    try:
        data, final = newest_model(open_run(run, options.s3_of(endpoint_url, region, checksums, addressing)))
    except NoExchange as error:
        raise NoExchange(f"{run!r}: {error}") from None
    _write(file, data)
    told = metadata_of(data)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "bytes": len(data), "final": final, **told}))
    else:
        kind = "the final model" if final else "the newest versions of a run that has written no final model since"
        typer.echo(f"{file}: {kind}, {_count(told, 'samples')} samples in {_count(told, 'steps')} steps")


def _count(told: Mapping[str, str], name: str) -> str:
    value = told.get(name, "0")
    return f"{int(value):,}" if value.isdecimal() else value


def _write(file: Path, data: bytes) -> None:
    """Write the whole file or nothing."""
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as part:
            part.write(data)
        os.chmod(part.name, 0o644)  # noqa: PTH101 - beside its replacement
        Path(part.name).replace(file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}; give a file in a folder that exists") from error
