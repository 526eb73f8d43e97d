"""Fixtures that several folders of tests share: an S3 server with fresh buckets, promtool, and a browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import hypothesis
import pytest
from mypy_boto3_s3 import S3Client

from gradientmail.mailbox import S3Options, open_mailbox
from gradientmail.mailbox.base import Store
from tests.browser import Browser, browser
from tests.promtool import Promtool
from tests.servers import CREDENTIALS, moto_server

ROOT = Path(__file__).parents[1]
INSTALL_SECONDS = 1800.0
ENSURE_PROMTOOL = (
    "from pathlib import Path; from testcluster import packages; "
    "print(packages.ensure_program('promtool', Path('build/promtool.log').absolute()))"
)


# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Let SIGINT interrupt: programs that a shell starts in the background ignore it, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Prometheus' tool for checking metrics and rules; Debian's package is installed where it is missing."""
    found = subprocess.run(
        [sys.executable, "-c", ENSURE_PROMTOOL],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack" / "cluster")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=INSTALL_SECONDS,
        check=True,
    )
    return Promtool(Path(found.stdout.strip()))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Endpoint URL of an S3 server in a process of its own; credentials are in the environment meanwhile."""
    with pytest.MonkeyPatch.context() as environment, moto_server() as endpoint:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        yield endpoint


@pytest.fixture(scope="session")
def s3_client(s3_server: str) -> S3Client:
    """A plain client of the S3 server, to arrange what a mailbox cannot."""
    return boto3.session.Session().client("s3", endpoint_url=s3_server)


@pytest.fixture
def bucket(s3_client: S3Client) -> str:
    """Name of a fresh bucket."""
    name = f"test-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_box(s3_server: str, bucket: str) -> Store:
    """An empty mailbox in a fresh bucket."""
    return open_mailbox(f"s3://{bucket}/runs/first", s3=S3Options(endpoint_url=s3_server))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A running Chromium; Debian's package is installed where it is missing."""
    with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running
