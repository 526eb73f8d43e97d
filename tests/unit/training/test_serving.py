"""Metrics and probes over HTTP, on loopback."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from gradientmail.exits import Exit, UserError
from gradientmail.training.serving import serving

HOST = "127.0.0.1"


def fetched(port: int, path: str, host: str = HOST) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_probes_share_a_port() -> None:
    registry = CollectorRegistry()
    Gauge("answer", "An answer.", registry=registry).set(42)
    ready = False
    with serving(0, registry, {"/livez": lambda: True, "/readyz": lambda: ready}, host=HOST) as port:
        assert "answer 42.0" in fetched(port, "/metrics")[1]
        assert fetched(port, "/livez") == (200, "ok\n")
        assert fetched(port, "/readyz") == (503, "service unavailable\n")
        ready = True
        assert fetched(port, "/readyz") == (200, "ok\n")
        assert fetched(port, "/other")[0] == 404


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_without_a_host_every_address_answers(address: str) -> None:
    with serving(0, CollectorRegistry(), {"/livez": lambda: True}) as port:
        assert fetched(port, "/livez", address) == (200, "ok\n")


def test_a_host_may_be_one_of_ipv6() -> None:
    with serving(0, CollectorRegistry(), {"/livez": lambda: True}, host="::1") as port:
        assert fetched(port, "/livez", "[::1]") == (200, "ok\n")


def test_port_is_free_again_afterwards() -> None:
    with serving(0, CollectorRegistry(), {}, host=HOST) as port:
        pass
    with serving(port, CollectorRegistry(), {}, host=HOST) as again:
        assert again == port


def test_taken_port_is_one_sentence() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as error, serving(port, CollectorRegistry(), {}, host=HOST):
            raise AssertionError("the port was taken")
    assert str(error.value) == (
        f"metrics port {port} is taken by another process: choose another with --metrics-port, or 0 for any"
    )
    assert error.value.exit is Exit.CONFIGURATION
