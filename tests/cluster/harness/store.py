"""An S3 server in the cluster: moto's, as a pod with a Service, and the bucket's keys as the tests see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from tests.servers import CREDENTIALS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PORT = 9000
SECRET = "bucket"


@dataclass(frozen=True)
class Store:
    """Buckets of the S3 server in the cluster. `endpoint` is what pods are told; the client may use another way."""

    endpoint: str
    client: S3Client = field(repr=False)

    def create_bucket(self, name: str) -> None:
        """Create a bucket."""
        self.client.create_bucket(Bucket=name)

    def names(self, url: str) -> list[str]:
        """Return the names of all objects under a URL's prefix, without that prefix."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]

    def objects(self, url: str) -> dict[str, str]:
        """Return all objects under a URL's prefix as text."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return {
            name: self.client.get_object(Bucket=bucket, Key=prefix + name)["Body"].read().decode()
            for name in self.names(url)
        }

    def mailbox(self, bucket: str) -> dict[str, str]:
        """Return spec.mailbox of a run in a bucket."""
        return {
            "url": f"s3://{bucket}/runs",
            "endpointURL": self.endpoint,
            "region": "us-east-1",
            "addressing": "Path",
            "secretName": SECRET,
        }


@contextmanager
def open_store(endpoint: str, reached_at: str) -> Iterator[Store]:
    """Give the store that pods reach at one URL and the tests at another."""
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=reached_at,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        config=Config(
            s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 5}
        ),
    )
    with closing(client):
        yield Store(endpoint, client)
