"""Fixtures for every test that needs S3: one server per session, a fresh bucket per test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import boto3
import pytest
from mypy_boto3_s3 import S3Client

from gradientmail.mailbox import S3Options, open_mailbox
from gradientmail.mailbox.base import Store
from tests.servers import CREDENTIALS, moto_server


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
