"""From a manifest's mailbox, or a URL that a person gave, to a store."""

from __future__ import annotations

from typing import Literal

from gradientmail.exits import UserError
from gradientmail.mailbox import S3Options, Store, open_mailbox
from gradientmail.run import MailboxSpec

CHECKSUMS: dict[str, Literal["when_supported", "when_required"]] = {
    "WhenSupported": "when_supported",
    "WhenRequired": "when_required",
}
STYLES: dict[str, Literal["auto", "path", "virtual"]] = {"Auto": "auto", "Path": "path", "Virtual": "virtual"}


def s3_options(spec: MailboxSpec | None) -> S3Options:
    """Return how to reach a manifest's store; without one, what boto3's chain says."""
    if spec is None:
        return S3Options()
    return S3Options(
        endpoint_url=spec.endpoint_url,
        region=spec.region,
        checksums=CHECKSUMS[spec.checksums],
        addressing_style=STYLES[spec.addressing],
    )


def open_url(url: str, options: S3Options | None = None) -> Store:
    """Open the mailbox at a URL. Makes no request. Raises UserError if the URL is not understood."""
    try:
        return open_mailbox(url, s3=options)
    except ValueError as error:
        raise UserError(str(error)) from error
