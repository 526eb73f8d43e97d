"""What boto's errors mean. Those that moto or a proxy can provoke are tested over HTTP instead."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from gradientmail.mailbox import MailboxDenied, MailboxError, MailboxMisconfigured, MailboxUnavailable
from gradientmail.mailbox.s3_errors import Place, explained

PLACE = Place("bucket", None, None)


def answered(code: str, status: int, *, operation: str = "PutObject", **headers: str) -> ClientError:
    metadata: Any = {
        "HTTPStatusCode": status,
        "HTTPHeaders": {name.replace("_", "-"): headers[name] for name in headers},
    }
    return ClientError({"Error": {"Code": code, "Message": "said"}, "ResponseMetadata": metadata}, operation)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            answered("PermanentRedirect", 301, x_amz_bucket_region="eu-west-1"),
            MailboxMisconfigured,
            "bucket 'bucket' at AWS is in another region, eu-west-1; set the region and endpoint to it",
        ),
        (
            answered("XMinioStorageFull", 507),
            MailboxUnavailable,
            "bucket 'bucket' at AWS is full (XMinioStorageFull); free some space and try again",
        ),
        (
            answered("InternalError", 0, operation="DeleteObjects"),
            MailboxUnavailable,
            "bucket 'bucket' at AWS could not serve put_if_absent now (0 InternalError); try again",
        ),
        (
            answered("EntityTooLarge", 400),
            MailboxMisconfigured,
            "bucket 'bucket' at AWS finds the object too large for one write (5 GiB at most on AWS); "
            "use more fragments",
        ),
        (
            answered("Teapot", 418),
            MailboxMisconfigured,
            "bucket 'bucket' at AWS rejected put_if_absent (418 Teapot: said); check the endpoint and region",
        ),
        (
            answered("AccessDenied", 403, operation="AssumeRoleWithWebIdentity"),
            MailboxDenied,
            "no usable credentials for bucket 'bucket' at AWS (AccessDenied: said); check AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the profile or the pod's role",
        ),
        (
            boto.CredentialRetrievalError(provider="container-role", error_msg="timed out"),
            MailboxUnavailable,
            "the credentials for bucket 'bucket' at AWS could not be fetched (Error when retrieving credentials from "
            "container-role: timed out); try again",
        ),
        (
            boto.SSLError(endpoint_url="https://x", error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")),
            MailboxMisconfigured,
            "the certificate of bucket 'bucket' at AWS is not trusted; set AWS_CA_BUNDLE to its authority's file",
        ),
        (
            ResponseParserError("no element found"),
            MailboxUnavailable,
            "bucket 'bucket' at AWS gave put_if_absent an answer that is not S3's; check the endpoint or try again",
        ),
    ],
    ids=lambda value: value.response["Error"]["Code"] if isinstance(value, ClientError) else "",
)
def test_an_error_is_one_sentence_that_says_what_to_do(
    error: Exception, kind: type[MailboxError], message: str
) -> None:
    told = explained(error, PLACE, "put_if_absent")
    assert type(told) is kind
    assert str(told) == message
