"""Log lines, as text in the form that torchtitan's users know, or as one JSON object each."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TextIO

from gradientmail.plain_json import dumps

ROOT = "gradientmail"

LogFormat = Literal["text", "json"]

logger = logging.getLogger(__name__)


def emit(
    event: str, message: str, level: int = logging.INFO, *, error: BaseException | None = None, **fields: Any
) -> None:
    """Write a line, with the error's traceback; in JSON with the event's name and the fields besides the message."""
    logger.log(level, "%s", message, exc_info=error, extra={"event": event, "fields": fields})


class TextFormatter(logging.Formatter):
    """`[a100-0] 2026-01-31 12:00:00,000 - INFO - message`, in UTC."""

    def __init__(self, node: str) -> None:
        super().__init__(f"[{node}] %(asctime)s - %(levelname)s - %(message)s")
        self.converter = time.gmtime


class JsonFormatter(logging.Formatter):
    """One object per line: time (seconds since the epoch), level, run, node, event, message and the event's fields."""

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            **self._always,
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return dumps(line, separators=(",", ":"), default=str)


@contextmanager
def logging_to(stream: TextIO, form: LogFormat, node: str) -> Iterator[dict[str, str]]:
    """Write this package's log lines to `stream` within the block.

    Yields the fields that every line in JSON has, `node` among them: more can be added once they are known.
    In JSON, whatever else is printed meanwhile goes to standard error, so that each line of `stream` is an object.
    """
    always = {"node": node}
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(always) if form == "json" else TextFormatter(node))
    root = logging.getLogger(ROOT)
    before = root.level, root.propagate, sys.stdout
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    root.propagate = False
    if form == "json":
        sys.stdout = sys.stderr
    try:
        yield always
    finally:
        root.removeHandler(handler)
        root.level, root.propagate, sys.stdout = before
