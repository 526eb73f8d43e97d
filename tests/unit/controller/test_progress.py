"""Reading counts from real pages over real connections: answers, silence, nonsense and crowds."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from gradientmail.metrics import Labels, TrainerMetrics
from gradientmail.progress import NodeProgress
from gradientrun import progress
from gradientrun.observed import Counts
from gradientrun.progress import Progress, Target, read_counts

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


NODE = {"namespace": "team", "run": "first", "node": "fast-0"}


def test_a_page_of_a_trainer() -> None:
    assert read_counts(PAGE, NODE) == Counts(claimed=12, consumed=11, step=239)


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
        ("gradientmail_units_claimed_total +Inf\ngradientmail_units_consumed_total 1\n", None),
        ("gradientmail_units_claimed_total 1e300\ngradientmail_units_consumed_total 1\n", None),
        ("gradientmail_units_claimed_total 10000001\ngradientmail_units_consumed_total 1\n", None),
        ("gradientmail_units_claimed_total 3\ngradientmail_units_consumed_total -1\n", None),
        (f"gradientmail_units_claimed_total {'9' * 5000}\ngradientmail_units_consumed_total 1\n", None),
        ("gradientmail_units_claimed_total 3.5\ngradientmail_units_consumed_total 1\n", None),
        ("gradientmail_units_claimed_total{\ngradientmail_units_consumed_total 1\n", None),
        (
            "gradientmail_units_claimed_total 3\ngradientmail_units_consumed_total 1\ngradientmail_step +Inf\n",
            Counts(claimed=3, consumed=1),
        ),
        ("gradientmail_step 1\n" * 100_000 + PAGE, None),
    ],
)
def test_pages_that_say_little_or_nonsense(page: str, counts: Counts | None) -> None:
    assert read_counts(page, NODE) == counts


def test_the_page_that_a_trainer_makes() -> None:
    told = NodeProgress("learner", "fast-0", claimed=12, consumed=11, step=239)
    page = generate_latest(TrainerMetrics(Labels(**NODE), units=800, progress=lambda: told).registry).decode()
    assert read_counts(page, NODE) == Counts(claimed=12, consumed=11, step=239)
    assert read_counts(page, NODE | {"node": "fast-1"}) is None


@pytest.mark.parametrize("label", ["namespace", "run", "node"])
def test_the_page_of_another_node_that_has_the_address_now_is_not_taken(label: str) -> None:
    assert read_counts(PAGE, NODE | {label: "other"}) is None


def test_a_page_without_labels_is_taken() -> None:
    page = "gradientmail_units_claimed_total 3\ngradientmail_units_consumed_total 1\n"
    assert read_counts(page, NODE) == Counts(claimed=3, consumed=1)


@given(st.lists(st.text('gradientmail_units_cosd{}="\\\\, 1.e+#\\tINFna', max_size=30)))
def test_no_page_is_more_than_no_count(rests: list[str]) -> None:
    read_counts("\n".join(f"gradientmail_units_claimed_total{rest}" for rest in rests) + "\n" + PAGE, {})


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


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def asked(answer: Answer, addresses: dict[str, str], seconds: float = 20) -> dict[str, Counts]:
    """Ask pods (name to address) that all answer so, within bounded time."""
    targets = {name: Target(address, NODE) for name, address in addresses.items()}
    async with asyncio.timeout(seconds), serving(answer) as port, Progress(port) as reader:
        return await reader.counts(targets)


def test_nodes_that_answer_are_told_by_pod() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    # 127.0.0.2 is this machine too, and nobody listens there.
    counts = asyncio.run(asked(answer, {"up": "127.0.0.1", "down": "127.0.0.2"}))
    assert counts == {"up": Counts(claimed=12, consumed=11, step=239)}


def test_an_error_is_no_count() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, status=503)

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"})) == {}


def test_a_node_that_never_answers_costs_no_more_than_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TIMEOUT_SECONDS", 0.2)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"})) == {}


def test_nodes_that_never_answer_cost_no_more_than_the_round_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "CONCURRENCY", 2)
    monkeypatch.setattr(progress, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(progress, "ROUND_SECONDS", 2.5)
    present = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal present
        present += 1
        await asyncio.Event().wait()
        return web.Response()

    assert asyncio.run(asked(answer, {f"pod-{number}": "127.0.0.1" for number in range(100)})) == {}
    assert 2 <= present <= 6


def test_a_redirect_is_not_followed() -> None:
    visited: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        visited.append(request.query_string)
        if not request.query_string:
            raise web.HTTPFound("/metrics?elsewhere")
        return web.Response(text=PAGE)

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"})) == {}
    assert visited == [""]


def test_nothing_is_decompressed() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=gzip.compress(PAGE.encode()), headers={"Content-Encoding": "gzip"})

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"})) == {}


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xfe\x00\n\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"",
    ],
)
def test_what_is_not_http_is_no_count(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def scenario() -> dict[str, Counts]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with asyncio.timeout(20), server, Progress(server.sockets[0].getsockname()[1]) as reader:
            return await reader.counts({"pod": Target("127.0.0.1", NODE)})

    assert asyncio.run(scenario()) == {}


def test_no_more_nodes_are_asked_at_a_time_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "CONCURRENCY", 3)
    present, most, full = 0, 0, asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        nonlocal present, most
        present += 1
        most = max(most, present)
        if present == 3:
            full.set()
        await full.wait()
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

    assert asyncio.run(asked(answer, {"pod": "127.0.0.1"}, 30)) == {"pod": Counts(claimed=12, consumed=11, step=239)}
