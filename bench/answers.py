"""A server that answers every request with one receipt at once: what is left is the client's own work."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

BODY = b'{"learner":"a-0-x","batches":20,"claimed":1700000000.0,"started":1700000001.0,"finished":1700000009.0}'
HEAD = b'HTTP/1.1 200 OK\r\nETag: "0123456789abcdef0123456789abcdef"\r\nContent-Length: %d\r\n\r\n'


@contextlib.contextmanager
def answering() -> Iterator[str]:
    """Give the URL of such a server, in a process of its own; end it after the block."""
    process = subprocess.Popen([sys.executable, "-m", "bench.answers"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(HEAD % len(BODY) + BODY)
            await writer.drain()
    writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
