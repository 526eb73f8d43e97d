"""Metrics and probes of a node over HTTP: /metrics, /livez and /readyz on one port."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from gradientmail.exits import UserError

EVERY_ADDRESS = ""
"""Of IPv6 and IPv4 where the machine has both: the kubelet and Prometheus come from other hosts, over either."""

Probe = Callable[[], bool]
Start = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _DualStackServer(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """A line per scrape helps nobody."""


@contextmanager
def serving(
    port: int, registry: CollectorRegistry, probes: Mapping[str, Probe], host: str = EVERY_ADDRESS
) -> Iterator[int]:
    """Serve within the block, on threads of its own; yields the port, which was chosen if `port` is 0.

    A probe's path answers 200 or 503. Raises UserError if the port is taken or may not be used.
    """
    application: Any = with_probes(make_wsgi_app(registry), probes)
    try:
        server = make_server(host, port, application, _server_class(host), _Quiet)
    except (OSError, OverflowError) as error:
        raise UserError(_refused(port, error)) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server_class(host: str) -> type[_Server]:
    both = host == EVERY_ADDRESS and socket.has_dualstack_ipv6()
    return _DualStackServer if both or ":" in host else _Server


def with_probes(metrics: Application, probes: Mapping[str, Probe]) -> Application:
    """Return the application that answers /metrics and the probes' paths, and 404 elsewhere."""

    def application(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return metrics(environ, start)
        if path not in probes:
            return _plain(start, "404 Not Found")
        return _plain(start, "200 OK" if probes[path]() else "503 Service Unavailable")

    return application


def _plain(start: Start, status: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{status[4:].lower()}\n".encode()]


def _refused(port: int, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"metrics port {port} is taken by another process: choose another with --metrics-port, or 0 for any"
    return f"metrics port {port} cannot be used: {error}"
