"""`gradientmail data`: from a folder of text to token files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradientmail.commands.options import within


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(data)


def data(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Folders or files of text.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to be made.")],
    glob: Annotated[str, typer.Option(help="Which files of the folders, as '*.py'.")] = "*",
    held_out: Annotated[
        float, typer.Option(callback=within(0.0, 0.9), help="Share of the text kept for evaluation, from 0 to 0.9.")
    ] = 0.05,
    shard_tokens: Annotated[int, typer.Option(min=1, help="The most tokens in one file.")] = 100_000_000,
    batch: Annotated[int, typer.Option(min=1, help="Sequences of a step, to say how many steps there are.")] = 64,
    context: Annotated[int, typer.Option(min=1, help="Tokens of a sequence, likewise.")] = 256,
    force: Annotated[bool, typer.Option("--force", help="Replace what this command made before.")] = False,
) -> None:
    """Turn text into token files: a token for each byte, and one before each document.

    Makes OUT/train and OUT/held-out with shards of uint16 tokens, and OUT/corpus.json. The same text gives the same
    files. The vocabulary has 257 tokens.
    """
    from gradientmail.training.data.shards import steps_served
    from gradientmail.training.data.text import Wish, make_corpus

    made = make_corpus(sources, glob, Wish(out, held_out, shard_tokens, force))
    skipped = f" ({made.skipped} files left out: empty or not text)" if made.skipped else ""
    typer.echo(f"{made.documents:,} documents{skipped}, vocabulary of {made.vocabulary} tokens")
    typer.echo(f"{out / 'train'}: {made.tokens:,} tokens")
    typer.echo(f"{out / 'held-out'}: {made.held_out_tokens:,} tokens")
    steps = steps_served(made.tokens, batch=batch, context=context)
    typer.echo(f"That serves {steps:,} steps of {batch:,} sequences of {context:,} tokens (spec.data.steps).")
