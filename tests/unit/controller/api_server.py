"""An HTTP server on this machine that answers as the test tells it, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web
from kubernetes.aio import client

from gradientrun.cluster import Cluster

Value = TypeVar("Value")


@dataclass(frozen=True)
class Asked:
    """One request."""

    verb: str
    path: str
    query: dict[str, str]
    content: str
    body: Any


Answer = tuple[int, Any]
"""Status and JSON."""


class ApiServer:
    """Answers by verb and path; the last answer of several is given again."""

    def __init__(self, answers: dict[str, list[Answer] | Answer]) -> None:
        self.asked: list[Asked] = []
        self._answers = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        content = request.headers.get("Content-Type", "")
        body = json.loads(text) if text else None
        self.asked.append(Asked(request.method, request.path, dict(request.query), content, body))
        waiting = self.answer_for(f"{request.method} {request.path}")
        if waiting is None:
            return web.json_response({"message": f"not served: {request.method} {request.path}"}, status=404)
        status, answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return web.json_response(answer, status=status)

    def answer_for(self, key: str) -> list[Answer] | None:
        """Return the answers left to a verb and path; None if it is not served."""
        return self._answers.get(key)

    @property
    def requests(self) -> list[str]:
        return [f"{asked.verb} {asked.path}" for asked in self.asked]


@asynccontextmanager
async def connected(server: ApiServer) -> AsyncIterator[Cluster]:
    """A Cluster whose API server is this one."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    cluster = Cluster(configuration)
    try:
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def against(server: ApiServer, scenario: Callable[[Cluster], Awaitable[Value]]) -> Value:
    """Run a scenario against the server, within bounded time."""

    async def bounded() -> Value:
        async with asyncio.timeout(20), connected(server) as cluster:
            return await scenario(cluster)

    return asyncio.run(bounded())
