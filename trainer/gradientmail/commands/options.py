"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from gradientmail.mailbox import S3Options

MOST = 1e9
"""Of numbers that have no other bound: in seconds, thirty years."""


class Checksums(StrEnum):
    """When the client adds checksums to requests."""

    WHEN_SUPPORTED = "when_supported"
    WHEN_REQUIRED = "when_required"


class Addressing(StrEnum):
    """Where the bucket's name stands in the request."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


EndpointURL = Annotated[str | None, typer.Option("--endpoint-url", help="The S3 service, if it is not AWS.")]
Region = Annotated[str | None, typer.Option("--region", help="The bucket's region.")]
WithChecksums = Annotated[
    Checksums, typer.Option("--checksums", help="`when_required` suits stores that reject newer checksums.")
]
WithAddressing = Annotated[
    Addressing, typer.Option("--addressing", help="Bucket's name in the path or in the host name.")
]


def within(lowest: float, highest: float = MOST) -> Callable[[float | None], float | None]:
    """Return a callback of an option that refuses other numbers, NaN too, and names the one given."""

    def checked(value: float | None) -> float | None:
        if value is None or lowest <= value <= highest:
            return value
        raise typer.BadParameter(f"{value:g} is not a number from {lowest:g} to {highest:g}")

    return checked


SilentAfter = Annotated[
    float,
    typer.Option(
        "--silent-after",
        callback=within(0.0),
        help="Seconds without a heartbeat after which a node is taken for dead, from 0.",
    ),
]


def s3_of(endpoint_url: str | None, region: str | None, checksums: Checksums, addressing: Addressing) -> S3Options:
    """Return how to reach the store. Credentials come from the environment, as for every S3 client."""
    return S3Options(
        endpoint_url=endpoint_url, region=region, checksums=checksums.value, addressing_style=addressing.value
    )
