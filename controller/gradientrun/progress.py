"""Counts of live learners, from their /metrics.

Assumes that pods are reached by their address from where the controller runs, and that the
trainers serve the metric names of their own package. Does not assume that any answers, nor that
who answers can be trusted: redirects are not followed, nothing is decompressed, a page is read up
to MOST_BYTES. A node that gives no sound answer is left out, and its last counts stand; final
counts never come from here. Of one run, at most CONCURRENCY nodes are asked at a time, each for at
most TIMEOUT_SECONDS, and all of them for at most ROUND_SECONDS, in an order of chance.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gradientmail import metrics
from gradientrun.names import METRICS_PORT
from gradientrun.observed import MOST_COUNTED, Counts

TIMEOUT_SECONDS = 2.0
ROUND_SECONDS = 5.0
"""For all nodes of a run: a change of its spec waits no longer for nodes that cannot be reached."""
CONCURRENCY = 32
MOST_BYTES = 1_000_000
"""What is read of an answer: a page of metrics is some 20 kB."""
MOST_SAMPLES = 16
"""What is read of the wanted metrics: a trainer gives each once."""

CLAIMED = f"{metrics.CLAIMED.name}_total"
CONSUMED = f"{metrics.CONSUMED.name}_total"
STEP = metrics.STEP.name


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask."""

    address: str
    labels: Mapping[str, str]
    """What the samples must not contradict: by now, another pod may have the address."""


class Progress:
    """Asks nodes for their counts. For one event loop; a context manager that closes its connections."""

    def __init__(self, port: int = METRICS_PORT) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            connector=aiohttp.TCPConnector(limit=0),  # a wait for a connection would count as the node's
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None, "entered before"
        await self._session.close()

    async def counts(self, targets: Mapping[str, Target]) -> dict[str, Counts]:
        """Return counts by pod name, of the pods that answer in time."""
        found: dict[str, Counts] = {}
        turns = asyncio.Semaphore(CONCURRENCY)

        async def ask(name: str, target: Target) -> None:
            async with turns:
                counts = await self._ask(target)
            if counts is not None:
                found[name] = counts

        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS), asyncio.TaskGroup() as group:
                for name in random.sample(list(targets), len(targets)):
                    group.create_task(ask(name, targets[name]))
        return found

    async def _ask(self, target: Target) -> Counts | None:
        assert self._session is not None, "entered before"
        host = f"[{target.address}]" if ":" in target.address else target.address
        url = f"http://{host}:{self._port}/metrics"
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    return None
                page = await response.content.read(MOST_BYTES)
                while not response.content.at_eof() and len(page) < MOST_BYTES:
                    page += await response.content.read(MOST_BYTES - len(page))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        return read_counts(page.decode(errors="replace"), target.labels)


def read_counts(page: str, labels: Mapping[str, str]) -> Counts | None:
    """Return the counts on a page of metrics, or None where it is not that of the trainer with these labels."""
    values: dict[str, float] = {}
    wanted = (line for line in page.splitlines() if _name(line) in (CLAIMED, CONSUMED, STEP))
    try:
        for sample in _samples("\n".join(islice(wanted, MOST_SAMPLES))):
            if any(sample.labels.get(name, expected) != expected for name, expected in labels.items()):
                return None
            values[sample.name] = sample.value
        claimed, consumed = _count(values.get(CLAIMED)), _count(values.get(CONSUMED))
    except ValueError:
        return None
    if claimed is None or consumed is None:
        return None
    return Counts(claimed=claimed, consumed=consumed, step=_count(values.get(STEP)))


def _name(line: str) -> str:
    return line.split("{", 1)[0].split(" ", 1)[0]


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text + "\n"):
        yield from family.samples


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= MOST_COUNTED and value == int(value) else None
