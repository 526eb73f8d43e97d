"""The live page and the metrics of a local run over HTTP: read-only, on loopback unless told otherwise.

Everything is made here and nothing is loaded from elsewhere; the Content-Security-Policy holds the
browser to that. On loopback only requests for a loopback name are answered: a web page elsewhere
whose name is made to lead here (DNS rebinding) reads nothing.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gradientmail.exits import UserError
from gradientmail.plain_json import dumps
from gradientmail.report.markup import Markup, element
from gradientmail.report.page import View, page, stylesheet

REFRESH_SECONDS = 5
"""How often a browser without scripts loads the page anew; with scripts it asks every two seconds."""
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

Start = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]
Content = tuple[str, bytes]
"""Content type and body."""


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 9400
    """0 for any free port."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Address:
    """Return the address that `ADDRESS:PORT`, `[ADDRESS]:PORT` or `PORT` names. Raises UserError."""
    match = re.fullmatch(r"(?:(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:\s]+)):)?([0-9]{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise UserError(f"--serve-at is {text!r}: expected ADDRESS:PORT or a port from 0 to 65535, as in {Address()}")
    return Address(match[1] or match[2] or Address.host, int(match[3]))


def is_loopback(name: str) -> bool:
    """Return whether a host's name or address leads to this machine alone; no name but localhost is looked up."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of browsers that have gone away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """A line per request would bury the run's own."""


def check_address(address: Address) -> None:
    """Raise UserError if the address is taken or may not be used, before anything else is done for it."""
    with serving(address, lambda _environ, _start: []):
        pass


@contextmanager
def serving(address: Address, application: Application) -> Iterator[Address]:
    """Serve within the block, on threads of its own; yields the address with the port that was chosen.

    Raises UserError if the address is taken or may not be used.
    """
    kind = _Server6 if ":" in address.host else _Server
    try:
        server = make_server(address.host, address.port, application, kind, _Handler)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(_refused(address, error)) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="live page", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def application(view: Callable[[], View], registry: CollectorRegistry, *, loopback: bool) -> Application:
    """Return what answers `/`, its style and script, `/metrics` and `/status.json`, and 404 elsewhere."""
    contents: Mapping[str, Callable[[], Content]] = {
        "/": lambda: ("text/html; charset=utf-8", live_page(view()).encode()),
        "/page.css": lambda: ("text/css; charset=utf-8", stylesheet().encode()),
        "/live.js": lambda: ("text/javascript; charset=utf-8", script().encode()),
        "/metrics": lambda: (CONTENT_TYPE_LATEST, generate_latest(registry)),
        "/status.json": lambda: ("application/json", dumps(view().status.to_dict()).encode()),
    }

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        status, (kind, body) = _answer(environ, contents, loopback=loopback)
        head = [("Content-Type", kind), ("Content-Length", str(len(body))), *HEADERS]
        start(status, [*head, ("Allow", "GET, HEAD")] if status.startswith("405") else head)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def _answer(
    environ: Mapping[str, Any], contents: Mapping[str, Callable[[], Content]], *, loopback: bool
) -> tuple[str, Content]:
    if loopback and not is_loopback(_name(environ.get("HTTP_HOST", ""))):
        return _plain("421 Misdirected Request", "this server answers for localhost and loopback addresses alone")
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _plain("405 Method Not Allowed", "only GET and HEAD: nothing here can be changed")
    content = contents.get(environ.get("PATH_INFO", "/") or "/")
    return ("200 OK", content()) if content else _plain("404 Not Found", "there are /, /metrics and /status.json")


def _plain(status: str, text: str) -> tuple[str, Content]:
    return status, ("text/plain; charset=utf-8", f"{text}\n".encode())


def _name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    match = re.fullmatch(r"\[(.*)\](?::\d+)?|([^:]*)(?::\d+)?", host)
    return ((match[1] or match[2] or "") if match else "").lower()


def live_page(view: View) -> str:
    """Return the page, which renews itself by its script, or as a whole where there are no scripts."""
    refresh = element("meta", http_equiv="refresh", content=str(REFRESH_SECONDS))
    head: list[Markup] = [
        element("link", rel="stylesheet", href="page.css"),
        element("script", src="live.js", defer=True),
        element("noscript", refresh),
    ]
    gone = element("p", "The command no longer answers: it has ended. This is the last that it told.", id="gone")
    links = element(
        "p", element("a", "metrics", href="metrics"), " · ", element("a", "status.json", href="status.json")
    )
    return page(view, head, element("footer", gone, links))


def script() -> str:
    """Return the page's script."""
    return files(__package__).joinpath("live.js").read_text(encoding="utf-8")


def _refused(address: Address, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{address} is taken by another process: choose another port with --serve-at, or port 0 for any free one"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot serve at {address} ({reason}): give an address of this machine with --serve-at"
