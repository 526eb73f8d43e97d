"""Log lines of the controller: one JSON object each, or text for reading."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

REPEATED = re.compile(r"Request attempt #(\d+) failed; will retry: (\w+) \S+?(/apis?/[^?\s]*)\S* -> (.*)", re.DOTALL)
TOLD_OF_REPEATS = 10
"""Of repeated requests of a watch, the second attempt is told, and then each of so many."""


ABOUT: ContextVar[tuple[str, str] | None] = ContextVar("about", default=None)
"""Namespace and name of the run that the task at hand is about."""


class JsonFormatter(logging.Formatter):
    """A line of JSON with time, level, logger and message, and what there is of namespace, run, node and traceback.

    A record gets further fields by `extra={"fields": {...}}`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record on one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _about() -> dict[str, str]:
    about = ABOUT.get()
    return {} if about is None else {"namespace": about[0], "run": about[1]}


class FewerRepeats(logging.Filter):
    """Tells of an outage in a few short lines; kopf tells of every attempt of every watch, with its whole address."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is told; its words are shortened in place."""
        repeated = REPEATED.match(record.getMessage())
        if repeated is None:
            return True
        attempt, verb, path, words = repeated.groups()
        record.msg, record.args, record.levelno, record.levelname = (
            f"{verb} {path}: attempt {attempt} failed: {words[:200]}",
            None,
            logging.WARNING,
            "WARNING",
        )
        return int(attempt) == 2 or int(attempt) % TOLD_OF_REPEATS == 0


def set_up(level: str, style: str) -> None:
    """Write log lines to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if style == "json" else text)
    handler.addFilter(FewerRepeats())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("asyncio").setLevel(logging.WARNING)
