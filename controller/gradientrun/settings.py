"""What the controller is told by its environment or its command line; the command line beats the environment."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradientmail.run import DNS_LABEL

PREFIX = "GRADIENTRUN_"
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "text")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller runs."""

    namespaces: tuple[str, ...] = ()
    """Namespaces whose runs are served; none for all."""
    metrics_port: int = 8080
    """Port of /metrics, /livez and /readyz."""
    resync_seconds: float = 300.0
    """How often everything is listed anew, in case a watch has missed something."""
    workers: int = 16
    """Runs reconciled at the same time."""
    log_format: str = "json"
    log_level: str = "info"


OPTIONS: Mapping[str, tuple[str, str]] = {
    "watch-namespaces": ("", "namespaces to serve, separated by commas; empty for all"),
    "metrics-port": ("8080", "port of /metrics, /livez and /readyz"),
    "resync-seconds": ("300", "how often everything is listed anew"),
    "workers": ("16", "runs reconciled at the same time"),
    "log-format": ("json", "json or text"),
    "log-level": ("info", "debug, info, warning or error"),
}


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises ValueError, one sentence, for a value that will not do; exits on --help."""
    given = _parser(environment).parse_args(arguments)
    return Settings(
        namespaces=_namespaces(given.watch_namespaces),
        metrics_port=int(_number("metrics-port", given.metrics_port, 1, 65535)),
        resync_seconds=_number("resync-seconds", given.resync_seconds, 1, 86400),
        workers=int(_number("workers", given.workers, 1, 1000)),
        log_format=_one_of("log-format", given.log_format, FORMATS),
        log_level=_one_of("log-level", given.log_level, LEVELS),
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradientrun-controller", description="Runs GradientRuns on Kubernetes: one trainer pod per node."
    )
    for name, (default, words) in OPTIONS.items():
        variable = PREFIX + name.upper().replace("-", "_")
        parser.add_argument(
            f"--{name}", default=environment.get(variable) or default, help=f"{words} ({variable}; {default or 'all'})"
        )
    return parser


def _namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    for name in names:
        if not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            raise ValueError(f"watch-namespaces has {name!r}: give names of namespaces, separated by commas")
    return names


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ValueError(f"{name} is {text!r}: give a number from {least} to {most}")
    return value


def _one_of(name: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(f"{name} is {text!r}: give one of {', '.join(choices)}")
    return text
