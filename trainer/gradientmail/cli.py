"""The command line: each command lives in gradientmail.commands, errors become one sentence and an exit code."""

from __future__ import annotations

import errno
import importlib
import inspect
import sys
from collections.abc import Callable

import typer

from gradientmail.exits import INSTALL_TORCH, Exit, UserError
from gradientmail.mailbox import MailboxMisconfigured, MailboxUnavailable

COMMANDS = ("local", "plan", "data", "doctor", "status", "report", "export", "train")


def application() -> typer.Typer:
    """Return the command line with every command; each module has a function `register(app)`."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Train one model on unequal GPUs that share nothing but an object store.",
    )
    for name in COMMANDS:
        register: Callable[[typer.Typer], None] = importlib.import_module(f"gradientmail.commands.{name}").register
        register(app)
    for command in app.registered_commands:
        # Typer keeps the source's line breaks in all paragraphs but the first.
        command.help = unwrapped(inspect.getdoc(command.callback) or "")
    return app


def unwrapped(text: str) -> str:
    """Return text with one line for each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def explained(error: BaseException) -> tuple[str, Exit] | None:
    """Return the sentence and exit code of an error that a user can act on, or None for a fault of the program."""
    match error:
        case UserError():
            return str(error), error.exit
        case MailboxUnavailable():
            return str(error), Exit.STORE
        case MailboxMisconfigured():
            return str(error), Exit.CONFIGURATION
        case ModuleNotFoundError(name="torch" | "safetensors" | "numpy"):
            return f"this needs {error.name}, which is not installed: {INSTALL_TORCH}", Exit.CONFIGURATION
        case OSError(errno=errno.ENOSPC):
            where = error.filename or "this machine"
            return f"no space is left on the disk of {where}: free some and try again", Exit.STORE
        case _:
            return None


def main() -> None:
    """Run the command line and leave with one of the codes of `Exit`."""
    try:
        application()()
    except KeyboardInterrupt:  # while the commands are imported; afterwards they see to it themselves
        print("gradientmail: interrupted", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        told = explained(error)
        if told is None:
            raise
        print(f"gradientmail: {told[0]}", file=sys.stderr)
        sys.exit(told[1])
