"""`gradientmail train`: the program that runs on each node."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gradientmail.cli import explained
from gradientmail.commands.options import within
from gradientmail.exits import INSTALL_TORCH, Exit, UserError
from gradientmail.manifest import load_manifest
from gradientmail.progress import NodeProgress

if TYPE_CHECKING:
    from gradientmail.training.interruption import Interruption
    from gradientmail.training.node import NodeOptions
    from gradientmail.training.program import Node


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


def train(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="File of the GradientRun.")],
    node: Annotated[
        str, typer.Option(envvar="GRADIENTMAIL_NODE", help="Name of this node: its pool and its index, as in a100-0.")
    ],
    learner_id: Annotated[
        str, typer.Option(envvar="GRADIENTMAIL_LEARNER", help="Name of this process, never used before in the run.")
    ],
    mailbox: Annotated[
        str, typer.Option(envvar="GRADIENTMAIL_MAILBOX", metavar="URL", help="The run's own prefix: s3:// or file://.")
    ],
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="GRADIENTMAIL_METRICS_PORT",
            min=0,
            max=65535,
            help="Serve /metrics, /livez and /readyz. 0: any port.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            envvar="GRADIENTMAIL_METRICS_HOST",
            help="Address of this machine to serve them at.",
            show_default="every address",
        ),
    ] = "",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(envvar="GRADIENTMAIL_LOG_FORMAT", help="Form of the lines printed.")
    ] = "text",
    termination_message: Annotated[
        Path | None,
        typer.Option(envvar="GRADIENTMAIL_TERMINATION_MESSAGE", help="File that the last progress is written to."),
    ] = None,
    grace_seconds: Annotated[
        float,
        typer.Option(
            envvar="GRADIENTMAIL_GRACE_SECONDS",
            callback=within(0.0),
            help="Leave at most this long after a signal, from 0.",
        ),
    ] = 25.0,
    join: Annotated[
        bool,
        typer.Option("--join", envvar="GRADIENTMAIL_JOIN", help="Take part in another run that the prefix holds."),
    ] = False,
    slowdown: Annotated[
        float | None,
        typer.Option(
            envvar="GRADIENTMAIL_SLOWDOWN",
            callback=within(1.0),
            help="Train this many times slower, from 1, for trials; left out, as the manifest's simulatedSpeed says.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(envvar="GRADIENTMAIL_NAMESPACE", help="Namespace in the metrics' labels; else the manifest's."),
    ] = None,
) -> None:
    """Train as one node of a run, until no unit of the shared queue is left.

    Ends with 0 when no unit is left, 143 or 130 after SIGTERM or SIGINT, 2 for what has to be corrected, 3 if the
    store stayed unreachable, 1 for whatever else failed.
    """
    # Signals count from here on; importing torch alone takes seconds.
    from gradientmail.training.interruption import Interruption
    from gradientmail.training.logs import logging_to
    from gradientmail.training.node import NodeOptions

    options = NodeOptions(
        node=node,
        learner_id=learner_id,
        mailbox=mailbox,
        namespace=namespace,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        log_format=log_format,
        termination_message=termination_message,
        grace_seconds=grace_seconds,
        join=join,
        slowdown=slowdown,
    )
    with Interruption(grace_seconds) as interruption, logging_to(sys.stdout, log_format, node) as always:
        code = _run(manifest, options, interruption, always)
    if code is not Exit.OK:
        raise typer.Exit(code)


def _run(path: Path, options: NodeOptions, interruption: Interruption, always: dict[str, str]) -> Exit:
    from gradientmail.training.farewell import write_termination_message

    try:
        node = _node(path, options, interruption)
    except UserError as error:
        progress = NodeProgress(options.learner_id, options.node, time.time(), "failed", message=str(error))
        write_termination_message(options.termination_message, progress)
        raise
    always |= {"run": node.manifest.metadata.name}
    return node.run()


def _node(path: Path, options: NodeOptions, interruption: Interruption) -> Node:
    manifest = load_manifest(path)
    from gradientmail.training.node import check_learner, place_of

    place_of(manifest, options.node)
    check_learner(options.learner_id)
    try:
        from gradientmail.training.program import Node
    except ModuleNotFoundError as error:
        raise UserError(f"training needs {error.name}, which is not installed: {INSTALL_TORCH}") from None
    return Node(manifest, options, interruption, explained)
