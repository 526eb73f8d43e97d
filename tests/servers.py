"""moto's S3 server in a process of its own, on a free loopback port.

moto checks `If-None-Match: *` and stores the object in two steps, so under its threaded server two racing
writes can both win, or one fail with 500 (both were seen). The server here lets one request at a time into moto,
which makes the two steps atomic, as they are in S3.
Bodies are read before that, so a client that stalls stalls no other.
"""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

START_SECONDS = 60.0
STOP_SECONDS = 10.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def moto_server() -> Iterator[str]:
    """Give the endpoint URL of a server that answers; end it after the block."""
    with moto_process() as (endpoint, _):
        yield endpoint


@contextmanager
def moto_process() -> Iterator[tuple[str, int]]:
    """Give the endpoint URL of a server that answers, and its process, which may be stopped; end it after the block."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **CREDENTIALS},
        start_new_session=True,  # Ctrl-C is for the tests, which then end the server
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        port = process.stdout.readline().decode().strip() if ready else ""
        if not port:
            raise RuntimeError(f"moto's server did not start within {START_SECONDS:.0f} s")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def one_at_a_time(application: Application) -> Application:
    """Let one request at a time into the application."""
    lock = threading.Lock()

    def serialized(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with lock:
            return list(application(environ, start_response))

    return serialized


def _serve() -> None:
    """Print the port once it listens; end when the parent closes our standard input or dies."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, name="moto", daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
