"""A loopback proxy in front of an S3 server that fails on the wire, where no double of the client can.

with faulty_proxy(endpoint) as proxy:
    proxy.add("PUT", lose_answer)
    box = open_mailbox(url, s3=S3Options(endpoint_url=proxy.url))
"""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

UPSTREAM_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Exchange(BaseHTTPRequestHandler):
    """One request, and the means to answer it or not."""

    protocol_version = "HTTP/1.1"
    server: ProxyServer

    def forwarded(self, without: str = "") -> Answer:
        """Send the request on, perhaps without one of its headers, and return the answer."""
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=UPSTREAM_SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() != without.lower()}
        try:
            upstream.request(self.command, self.path, self.body, headers)
            response = upstream.getresponse()
            return Answer(response.status, tuple(response.getheaders()), response.read())
        finally:
            upstream.close()

    def answer(self, answer: Answer, *, body_bytes: int | None = None) -> None:
        """Send an answer on; with body_bytes, break off after so many bytes of the body."""
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[:body_bytes])
        if body_bytes is not None:
            self.hang_up()

    def refuse(self, status: int, code: str) -> None:
        """Answer with an error of S3's, without asking the server."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.answer(Answer(status, (("Content-Type", "application/xml"),), body))

    def hang_up(self) -> None:
        """Close the connection without (further) answer."""
        self.close_connection = True

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.fault_for(self)(self)

    do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


Fault = Callable[[Exchange], None]


def passed_on(exchange: Exchange) -> None:
    exchange.answer(exchange.forwarded())


def lose_answer(exchange: Exchange) -> None:
    exchange.forwarded()
    exchange.hang_up()


def hang_up(exchange: Exchange) -> None:
    exchange.hang_up()


def refuse(status: int, code: str) -> Fault:
    return lambda exchange: exchange.refuse(status, code)


def land_then_refuse(status: int, code: str) -> Fault:
    def fault(exchange: Exchange) -> None:
        exchange.forwarded()
        exchange.refuse(status, code)

    return fault


def break_off(body_bytes: int) -> Fault:
    return lambda exchange: exchange.answer(exchange.forwarded(), body_bytes=body_bytes)


def garble(exchange: Exchange) -> None:
    answer = exchange.forwarded()
    exchange.answer(Answer(answer.status, answer.headers, bytes([answer.body[0] ^ 1]) + answer.body[1:]))


def empty_body(exchange: Exchange) -> None:
    exchange.answer(Answer(200, (), b""))


def ignore_condition(exchange: Exchange) -> None:
    exchange.answer(exchange.forwarded(without="If-None-Match"))


def answer_html(exchange: Exchange) -> None:
    exchange.answer(Answer(200, (("Content-Type", "text/html"),), b"<html><body>Welcome<br></body></html>"))


@dataclass
class Rule:
    method: str
    fault: Fault
    path: str
    left: int | None


class ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.upstream = upstream
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: deque[tuple[str, str, dict[str, str]]] = deque()
        self.peers: list[int] = []
        """The client's port of each request: one for each connection."""
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, method: str, fault: Fault, *, path: str = "", count: int | None = 1) -> None:
        """Let the next `count` requests of the method, whose path holds `path`, meet the fault; None for all."""
        with self._lock:
            self._rules.append(Rule(method, fault, path, count))

    def fault_for(self, exchange: Exchange) -> Fault:
        with self._lock:
            self.peers.append(exchange.client_address[1])
            self.requests.append((exchange.command, exchange.path, dict(exchange.headers.items())))
            for rule in self._rules:
                if rule.method == exchange.command and rule.path in exchange.path and rule.left != 0:
                    rule.left = None if rule.left is None else rule.left - 1
                    return rule.fault
        return passed_on

    def count(self, method: str) -> int:
        """Return how many requests of the method have come."""
        with self._lock:
            return sum(command == method for command, _, _ in self.requests)

    def headers(self, method: str) -> dict[str, str]:
        """Return the headers of the last request of the method."""
        with self._lock:
            return next(headers for command, _, headers in reversed(self.requests) if command == method)


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[ProxyServer]:
    server = ProxyServer(urlsplit(endpoint).netloc)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="proxy")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
