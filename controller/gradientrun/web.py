"""The controller's own page of metrics and its probes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gradientrun.controller import Controller


@asynccontextmanager
async def serving(controller: Controller, registry: CollectorRegistry, port: int) -> AsyncIterator[int]:
    """Serve /metrics, /livez and /readyz meanwhile. Gives the port, a free one for 0. Raises OSError if it is taken."""

    async def livez(_: web.Request) -> web.Response:
        troubles = controller.troubles()
        return web.Response(text="\n".join(troubles or ["ok"]) + "\n", status=500 if troubles else 200)

    async def readyz(_: web.Request) -> web.Response:
        words, status = ("ok", 200) if controller.ready else ("not everything that exists has been listed yet", 503)
        return web.Response(text=words + "\n", status=status)

    async def metrics(_: web.Request) -> web.Response:
        # In a thread: of 200 runs of 50 nodes it is 33,000 lines, a quarter of a second.
        page = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        listening = listen(port)
        await web.SockSite(runner, listening).start()
        yield listening.getsockname()[1]
    finally:
        await runner.cleanup()


def listen(port: int) -> socket.socket:
    """Return a socket that listens at every address, of IPv6 and IPv4 where the host has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
