"""Every kind of mailbox that the contract holds for.

GRADIENTMAIL_TEST_S3_URL (s3://BUCKET/PREFIX) and GRADIENTMAIL_TEST_S3_ENDPOINT add a real store.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradientmail.mailbox import S3Options, Store, open_mailbox
from tests.integration.mailbox.proxy import ProxyServer, faulty_proxy

REAL_URL = os.environ.get("GRADIENTMAIL_TEST_S3_URL", "")
REAL_ENDPOINT = os.environ.get("GRADIENTMAIL_TEST_S3_ENDPOINT") or None
KINDS = ["memory", "file", "s3", *(["real"] if REAL_URL else [])]

NewBox = Callable[[], Store]
"""Opens an empty mailbox, another one at each call."""


@pytest.fixture(params=KINDS)
def new_box(request: pytest.FixtureRequest) -> Iterator[NewBox]:
    """Open empty mailboxes of one kind; a real store is emptied afterwards."""
    opened: list[Store] = []
    base, options = _place(request)

    def new() -> Store:
        opened.append(open_mailbox(f"{base}/{uuid.uuid4().hex}", s3=options))
        return opened[-1]

    yield new
    if request.param == "real":
        for store in opened:
            store.delete(list(store.list()))


def _place(request: pytest.FixtureRequest) -> tuple[str, S3Options]:
    match request.param:
        case "memory":
            return "memory:test", S3Options()
        case "file":
            folder: Path = request.getfixturevalue("tmp_path")
            return f"file://{folder}", S3Options()
        case "s3":
            endpoint: str = request.getfixturevalue("s3_server")
            return f"s3://{request.getfixturevalue('bucket')}/runs", S3Options(endpoint_url=endpoint)
        case _:
            return REAL_URL.rstrip("/"), S3Options(endpoint_url=REAL_ENDPOINT)


@pytest.fixture
def box(new_box: NewBox) -> Store:
    """An empty mailbox of each kind."""
    return new_box()


@pytest.fixture
def proxy(s3_server: str) -> Iterator[ProxyServer]:
    """A proxy in front of the S3 server that fails as it is told."""
    with faulty_proxy(s3_server) as server:
        yield server


@pytest.fixture
def proxied(proxy: ProxyServer, bucket: str) -> Store:
    """An empty S3 mailbox behind the proxy, with two attempts for each request."""
    return open_mailbox(f"s3://{bucket}/run", s3=S3Options(endpoint_url=proxy.url, attempts=2))
