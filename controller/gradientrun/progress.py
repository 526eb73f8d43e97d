"""Counts of live learners, from their /metrics.

Assumes that pods are reached by their address from where the controller runs, and that the
trainers serve the metric names of their own package. Does not assume that any answers: one that
does not is left out, and its last counts stand; final counts never come from here. At most
CONCURRENCY nodes are asked at a time, over all runs, each for at most TIMEOUT_SECONDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gradientrun.names import METRICS_PORT
from gradientrun.observed import Counts

TIMEOUT_SECONDS = 2.0
CONCURRENCY = 32
MOST_BYTES = 1_000_000
"""What is read of an answer: a page of metrics is some 20 kB."""

CLAIMED = "gradientmail_units_claimed_total"
CONSUMED = "gradientmail_units_consumed_total"
UNITS = "gradientmail_units"
STEP = "gradientmail_step"


class Progress:
    """Asks nodes for their counts. For one event loop; a context manager that closes its connections."""

    def __init__(self, port: int = METRICS_PORT) -> None:
        self._port = port
        self._turns = asyncio.Semaphore(CONCURRENCY)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None, "entered before"
        await self._session.close()

    async def counts(self, addresses: Mapping[str, str]) -> dict[str, Counts]:
        """Return counts by pod name, of the pods (name to address) that answer in time."""
        answers = await asyncio.gather(*(self._ask(address) for address in addresses.values()))
        return {name: counts for name, counts in zip(addresses, answers, strict=True) if counts is not None}

    async def _ask(self, address: str) -> Counts | None:
        assert self._session is not None, "entered before"
        host = f"[{address}]" if ":" in address else address
        async with self._turns:
            try:
                async with self._session.get(f"http://{host}:{self._port}/metrics") as response:
                    if response.status != 200:
                        return None
                    page = await response.content.read(MOST_BYTES)
                    while not response.content.at_eof() and len(page) < MOST_BYTES:
                        page += await response.content.read(MOST_BYTES - len(page))
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
        return read_counts(page.decode(errors="replace"))


def read_counts(page: str) -> Counts | None:
    """Return the counts on a page of metrics, or None where it is not a trainer's."""
    values: dict[str, float] = {}
    wanted = (line for line in page.splitlines() if _name(line) in (CLAIMED, CONSUMED, UNITS, STEP))
    try:
        for name, value in _samples("\n".join(wanted)):
            values[name] = values.get(name, 0.0) + value
        if CLAIMED not in values or CONSUMED not in values:
            return None
        return Counts(
            claimed=int(values[CLAIMED]),
            consumed=int(values[CONSUMED]),
            step=_whole(values.get(STEP)),
            units=_whole(values.get(UNITS)),
        )
    except ValueError:
        return None


def _name(line: str) -> str:
    return line.split("{", 1)[0].split(" ", 1)[0]


def _samples(text: str) -> Iterable[tuple[str, float]]:
    for family in text_string_to_metric_families(text + "\n"):
        for sample in family.samples:
            yield sample.name, sample.value


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 else None
