"""Reading counts from real pages over real connections: answers, silence, nonsense and crowds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gradientrun import progress
from gradientrun.observed import Counts
from gradientrun.progress import Progress, read_counts

PAGE = """\
# HELP gradientmail_units Units of the run.
# TYPE gradientmail_units gauge
gradientmail_units{namespace="team",run="first",node="fast-0"} 800.0
# HELP gradientmail_units_claimed_total Units claimed.
# TYPE gradientmail_units_claimed_total counter
gradientmail_units_claimed_total{namespace="team",run="first",node="fast-0"} 12.0
# TYPE gradientmail_units_claimed_created gauge
gradientmail_units_claimed_created{namespace="team",run="first",node="fast-0"} 1.7e+09
# TYPE gradientmail_units_consumed_total counter
gradientmail_units_consumed_total{namespace="team",run="first",node="fast-0"} 11.0
# TYPE gradientmail_step gauge
gradientmail_step{namespace="team",run="first",node="fast-0"} 239.0
# TYPE gradientmail_claim_seconds histogram
gradientmail_claim_seconds_bucket{le="0.1"} 3.0
gradientmail_claim_seconds_bucket{le="+Inf"} 4.0
gradientmail_claim_seconds_count 4.0
gradientmail_claim_seconds_sum 0.5
"""


def test_a_page_of_a_trainer() -> None:
    assert read_counts(PAGE) == Counts(claimed=12, consumed=11, step=239, units=800)


@pytest.mark.parametrize(
    ("page", "counts"),
    [
        ("", None),
        ("<html>not found</html>", None),
        ("gradientmail_units_claimed_total 3.0\n", None),
        ("gradientmail_units_claimed_total x\ngradientmail_units_consumed_total 1\n", None),
        ('gradientmail_units_claimed_total{run="a} 3\ngradientmail_units_consumed_total 1\n', None),
        ("gradientmail_units_claimed_total NaN\ngradientmail_units_consumed_total 1\n", None),
        (
            "gradientmail_units_claimed_total 3\ngradientmail_units_consumed_total 1\ngradientmail_step -1\n",
            Counts(claimed=3, consumed=1),
        ),
    ],
)
def test_pages_that_say_little_or_nonsense(page: str, counts: Counts | None) -> None:
    assert read_counts(page) == counts


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[int]:
    application = web.Application()
    application.add_routes([web.get("/metrics", answer)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def asked(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], addresses: dict[str, str]
) -> dict[str, Counts]:
    async with serving(answer) as port, Progress(port) as reader:
        return await reader.counts(addresses)


def test_nodes_that_answer_are_told_by_pod() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    # 127.0.0.2 is this machine too, and nobody listens there.
    counts = asyncio.run(asked(answer, {"up": "127.0.0.1", "down": "127.0.0.2"}))
    assert counts == {"up": Counts(claimed=12, consumed=11, step=239, units=800)}


def test_an_error_is_no_count() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, status=503)

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"})) == {}


def test_a_node_that_never_answers_costs_no_more_than_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TIMEOUT_SECONDS", 0.2)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def bounded() -> dict[str, Counts]:
        async with asyncio.timeout(10):
            return await asked(answer, {"pod": "127.0.0.1"})

    assert asyncio.run(bounded()) == {}


def test_no_more_nodes_are_asked_at_a_time_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "CONCURRENCY", 3)
    present, most = 0, 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal present, most
        present += 1
        most = max(most, present)
        for _turn in range(20):
            await asyncio.sleep(0)
        present -= 1
        return web.Response(text=PAGE)

    counts = asyncio.run(asked(answer, {f"pod-{number}": "127.0.0.1" for number in range(20)}))
    assert len(counts) == 20
    assert most == 3


def test_an_endless_page_is_cut() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PAGE.encode())
        for _ in range(40):
            await response.write(b"# filler\n" * 10_000)
        return response

    async def bounded() -> dict[str, Counts]:
        async with asyncio.timeout(30):
            return await asked(answer, {"pod": "127.0.0.1"})

    assert asyncio.run(bounded()) == {"pod": Counts(claimed=12, consumed=11, step=239, units=800)}
