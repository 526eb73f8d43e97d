"""A real Prometheus in a process of its own, and its HTTP API."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.waiting import until

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
STOP_SECONDS = 10.0
REQUEST_SECONDS = 15.0
ANY_PORT = 0
LOWEST_PORT = 10_000
"""Those below have names, and programs that begin to listen at them whenever they like."""
GIVEN_TO_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")

Labels = frozenset[tuple[str, str]]


class QueryFailed(Exception):
    """Prometheus refused a query; the text is its own words."""


@dataclass(frozen=True)
class Prometheus:
    """Its API. A query is answered for `now`, or for a time in seconds since the epoch."""

    url: str

    def instant(self, expression: str, at: float | None = None) -> dict[Labels, float]:
        """Return the value of each series of an expression, by its labels."""
        asked = {"query": expression} if at is None else {"query": expression, "time": str(at)}
        result = self.ask("query", asked)["result"]
        return {frozenset(series["metric"].items()): float(series["value"][1]) for series in result}

    def by(self, label: str, expression: str, at: float | None = None) -> dict[str, float]:
        """Return the value of each series by one of its labels."""
        return {dict(labels).get(label, ""): value for labels, value in self.instant(expression, at).items()}

    def value(self, expression: str, at: float | None = None) -> float | None:
        """Return the one value of an expression, or None if it has none."""
        values = list(self.instant(expression, at).values())
        assert len(values) <= 1, f"{expression} has {len(values)} series"
        return values[0] if values else None

    def over_time(
        self, expression: str, *, start: float, end: float, step: float
    ) -> dict[Labels, list[tuple[float, float]]]:
        """Return each series of an expression as times and values."""
        asked = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        result = self.ask("query_range", asked)["result"]
        return {
            frozenset(series["metric"].items()): [(float(when), float(value)) for when, value in series["values"]]
            for series in result
        }

    def label_values(self, selector: str, label: str) -> list[str]:
        """Return the values of a label, as Grafana's `label_values` does."""
        found: list[str] = self.ask(f"label/{label}/values", {"match[]": selector})
        return found

    def ask(self, what: str, parameters: Mapping[str, str]) -> Any:
        """Return the data of an answer of the API. Raises QueryFailed."""
        try:
            with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise QueryFailed(f"{parameters}: {json.load(error)['error']}") from None


def scraping(job: str, targets: Sequence[str], *, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return the configuration of a job that scrapes addresses, and keeps the labels that they give."""
    return {
        "job_name": job,
        "honor_labels": True,
        "scrape_interval": f"{seconds * 1000:.0f}ms",
        "scrape_timeout": f"{seconds * 1000:.0f}ms",
        "static_configs": [{"targets": list(targets)}],
        **more,
    }


@contextmanager
def prometheus_server(
    program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """Run Prometheus on a free port of the loopback, with its data in a folder, and end it after the block."""
    configuration = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [dict(job) for job in jobs],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{free_port()}"
    words = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log, cwd=folder)
    try:
        _wait_ready(url, process, folder / "prometheus.log")
        yield Prometheus(url)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def documented_job() -> dict[str, Any]:
    """Return the job that docs/observability.md gives to those without the Prometheus operator."""
    text = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", text, re.DOTALL)
    job: dict[str, Any]
    (job,) = yaml.safe_load(found)["scrape_configs"]
    return job


def free_port() -> int:
    """Return a port that nobody listened at a moment ago.

    It may be used much later: where there are such ports, it is one that the system gives to no connection meanwhile.
    """
    first, last = map(int, GIVEN_TO_CONNECTIONS.read_text().split())
    kept = [*range(LOWEST_PORT, first), *range(last + 1, 65_536)]
    for port in (*random.sample(kept, len(kept)), ANY_PORT):
        with suppress(OSError), socket.create_server(("", port)) as server:
            return int(server.getsockname()[1])
    raise AssertionError("no port is free")


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:

    def runs() -> None:
        assert process.poll() is None, f"Prometheus does not start: {log.read_text()[-2000:]}"

    until(
        lambda: _is_ready(url),
        "Prometheus",
        START_SECONDS,
        every_seconds=0.05,
        meanwhile=runs,
        seen=lambda: log.read_text()[-2000:],
    )


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=REQUEST_SECONDS):
            return True
    except (URLError, OSError):
        return False
