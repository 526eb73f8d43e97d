"""The live page's server: what it answers, to whom, and what a browser may do with it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from typer.testing import CliRunner

from gradientmail.cli import application as command_line
from gradientmail.exits import Exit, UserError
from gradientmail.local.serving import Address, address_of, application, check_address, live_page, serving
from gradientmail.report.page import View
from tests.unit.report.simulated import state

VIEW = View.of(state({"a": 1.0, "b": 0.5}, steps=6, unit_steps=1))
HOST = "127.0.0.1"
DEMO = Path(__file__).resolve().parents[2] / "examples/demo/run.yaml"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("answer", "An answer.", registry=registry).set(42)
    with serving(Address(HOST, 0), application(lambda: VIEW, registry, loopback=True)) as where:
        yield where.port


def asked(port: int, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of an answer."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=10)) as connection:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/", "text/html; charset=utf-8", "<title>four-speeds: complete</title>"),
        ("/page.css", "text/css; charset=utf-8", "prefers-color-scheme: dark"),
        ("/live.js", "text/javascript; charset=utf-8", '"use strict"'),
        ("/metrics", "text/plain; version=1.0.0; charset=utf-8", "answer 42.0"),
        ("/status.json", "application/json", '"standing": "complete"'),
    ],
)
def test_every_path_has_its_kind_and_its_policy(port: int, path: str, kind: str, content: str) -> None:
    status, headers, body = asked(port, path)
    assert (status, headers["Content-Type"]) == (200, kind)
    assert content in body
    assert int(headers["Content-Length"]) == len(body.encode())
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_the_status_is_json(port: int) -> None:
    assert json.loads(asked(port, "/status.json")[2])["consumed"] == 24


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(port: int, method: str) -> None:
    status, headers, _ = asked(port, "/", method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(port: int) -> None:
    status, headers, body = asked(port, "/", method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("path", ["/../cli.py", "/page.py", "/index.html", "/metrics/x", "/%00"])
def test_nothing_else_is_there(port: int, path: str) -> None:
    assert asked(port, path)[0] == 404


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "127.0.0.2:9400", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_answered(port: int, host: str) -> None:
    assert asked(port, "/status.json", host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9400", "[::2]", "a:b:c"])
def test_a_name_that_was_made_to_lead_here_is_answered_by_nothing(port: int, host: str) -> None:
    status, _, body = asked(port, "/status.json", host=host)
    assert status == 421
    assert "four-speeds" not in body


def test_an_address_of_loopback_answers_by_itself() -> None:
    with serving(Address("127.0.0.2", 0), application(lambda: VIEW, CollectorRegistry(), loopback=True)) as where:
        with closing(http.client.HTTPConnection("127.0.0.2", where.port, timeout=10)) as connection:
            connection.request("GET", "/status.json")
            assert connection.getresponse().status == 200


def test_elsewhere_than_on_loopback_any_name_will_do() -> None:
    with serving(Address(HOST, 0), application(lambda: VIEW, CollectorRegistry(), loopback=False)) as where:
        assert asked(where.port, "/status.json", host="trainer.example")[0] == 200


def test_without_scripts_the_page_loads_itself_anew() -> None:
    text = live_page(VIEW)
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in text
    assert '<script src="live.js" defer></script>' in text
    assert "://" not in text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9500", Address(HOST, 9500)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("localhost:80", Address("localhost", 80)),
        ("[::1]:9400", Address("::1", 9400)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1:", "127.0.0.1:65536", ":80:90", "::1:80", "a b:80", "-1"])
def test_what_is_no_address_is_a_sentence(text: str) -> None:
    with pytest.raises(UserError) as error:
        address_of(text)
    assert str(error.value) == (
        f"--serve-at is {text!r}: expected ADDRESS:PORT or a port from 0 to 65535, as in 127.0.0.1:9400"
    )


def test_an_empty_address_is_a_mistake_and_not_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(command_line(), ["local", str(DEMO), "--out", str(tmp_path / "run"), "--serve-at", ""])
    assert str(done.exception).startswith("--serve-at is '': expected ADDRESS:PORT")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("x", False)],
)
def test_loopback_is_known_from_other_addresses(host: str, loopback: bool) -> None:
    assert Address(host).loopback is loopback


def test_addresses_are_written_as_urls_have_them() -> None:
    assert (str(Address()), str(Address("::1", 80))) == ("127.0.0.1:9400", "[::1]:80")


def test_a_taken_port_is_a_sentence_before_anything_is_done() -> None:
    with socket.create_server((HOST, 0)) as taken:
        where = Address(HOST, taken.getsockname()[1])
        with pytest.raises(UserError) as error:
            check_address(where)
    assert str(error.value) == (
        f"{where} is taken by another process: choose another port with --serve-at, or port 0 for any free one"
    )
    assert error.value.exit is Exit.CONFIGURATION


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
def test_an_address_of_another_machine_is_a_sentence(host: str) -> None:
    with pytest.raises(UserError, match=rf"cannot serve at {host}:9400 \(.+\): give an address of this machine"):
        check_address(Address(host))
