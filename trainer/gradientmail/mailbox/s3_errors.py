"""What an S3 client's error means for a mailbox, in one sentence. Never shows a secret."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gradientmail.mailbox.errors import (
    MailboxDenied,
    MailboxError,
    MailboxMisconfigured,
    MailboxNotFound,
    MailboxUnavailable,
    MailboxUnsuitable,
)

AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")


class Place(NamedTuple):
    """Where requests go, as users know it."""

    bucket: str
    endpoint_url: str | None
    region: str | None

    def __str__(self) -> str:
        return f"bucket {self.bucket!r} at {self.endpoint}"

    def reached_at(self, url: str) -> Place:
        """Return the place whose client sends its requests to `url`."""
        host = urlsplit(url).hostname or ""
        return self if host.endswith(AWS_HOSTS) else self._replace(endpoint_url=url)

    @property
    def endpoint(self) -> str:
        """The endpoint, or AWS's own."""
        return self.endpoint_url or "AWS"


CREDENTIALS = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the profile or the pod's role"

DENIED = {
    "InvalidAccessKeyId": f"does not know the access key; {CREDENTIALS}",
    "SignatureDoesNotMatch": f"found that the secret key does not match the access key; {CREDENTIALS}",
    "ExpiredToken": f"says that the credentials have expired; renew them: {CREDENTIALS}",
    "TokenRefreshRequired": f"says that the credentials have expired; renew them: {CREDENTIALS}",
    "InvalidToken": f"does not accept the session token; {CREDENTIALS}",
    "AccountProblem": "reports a problem with the account; see its console",
    "AllAccessDisabled": "has disabled all access to the bucket; see its console",
}

MISCONFIGURED = {
    "RequestTimeTooSkewed": "finds this machine's clock wrong by over 15 minutes; set the clock",
    "InvalidBucketName": "does not allow the bucket's name; correct the mailbox URL",
    "KeyTooLongError": "finds the key too long; use a shorter prefix",
    "EntityTooLarge": "finds the object too large for one write (5 GiB at most on AWS); use more fragments",
    "MethodNotAllowed": "does not allow the operation; check that the endpoint is an S3 service",
}

CHECKSUMS = frozenset(
    {"BadDigest", "InvalidDigest", "MissingContentMD5", "XAmzContentSHA256Mismatch", "InvalidRequest"}
)
WRONG_REGION = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
OVERLOADED = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
        "RequestTimeout",
        "InternalError",
        "ServiceUnavailable",
    }
)
NO_CREDENTIALS: tuple[type[BotoCoreError], ...] = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.TokenRetrievalError,
    boto.ProfileNotFound,
    boto.SSOError,
    boto.LoginError,
    boto.NoAuthTokenError,
)
UNFETCHED = (boto.CredentialRetrievalError, boto.MetadataRetrievalError, RuntimeError)
"""The service that hands out or renews credentials failed. RuntimeError: it handed out expired ones."""
CONNECTION: tuple[type[BotoCoreError], ...] = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.FlexibleChecksumError,
)

ClientFailure = (ClientError, BotoCoreError, ResponseParserError, RuntimeError)
"""All that a request through boto3 raises."""


def code(error: ClientError) -> str:
    """Return the error's code, such as NoSuchKey."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status(error: ClientError) -> int:
    """Return the HTTP status, 0 if unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def explained(error: Exception, place: Place, operation: str) -> MailboxError:
    """Return the mailbox's error for a failed operation: its type says whether to try again, its text what to fix."""
    if isinstance(error, ClientError):
        return _answered(error, place, operation)
    if isinstance(error, boto.SSLError):
        return _insecure(error, place)
    if isinstance(error, NO_CREDENTIALS):
        return MailboxDenied(f"no usable credentials for {place} ({_first_line(error)}); {CREDENTIALS}")
    if isinstance(error, UNFETCHED):
        return MailboxUnavailable(f"the credentials for {place} could not be fetched ({_first_line(error)}); try again")
    if isinstance(error, CONNECTION):
        return MailboxUnavailable(
            f"{place} did not answer {operation} ({_first_line(error)}); check the endpoint or try again"
        )
    if isinstance(error, ResponseParserError):
        return MailboxUnavailable(
            f"{place} gave {operation} an answer that is not S3's; check the endpoint or try again"
        )
    return MailboxMisconfigured(f"cannot use {place}: {_first_line(error)}; check the mailbox URL, endpoint and region")


def _answered(error: ClientError, place: Place, operation: str) -> MailboxError:
    name, number = code(error), status(error)
    if error.operation_name.startswith(("Assume", "GetRole", "GetSession")) and number < 500:
        return MailboxDenied(f"no usable credentials for {place} ({_message(error)}); {CREDENTIALS}")
    if name == "NoSuchBucket" or (number == 404 and name in ("404", "NotFound")):
        return MailboxNotFound(f"{place} does not exist; create it or correct the mailbox URL and endpoint")
    if name in DENIED:
        return MailboxDenied(f"{place} {DENIED[name]}")
    if number == 501 and operation == "put_if_absent":
        return MailboxUnsuitable(
            f"{place} lacks conditional writes (501 {name}); use a store that honours If-None-Match, "
            "or try the checksums `when_required` if it should"
        )
    if name in MISCONFIGURED:
        return MailboxMisconfigured(f"{place} {MISCONFIGURED[name]}")
    if name in WRONG_REGION or number in (301, 307, 308):
        return MailboxMisconfigured(
            f"{place} is in another region{_right_region(error)}; set the region and endpoint to it"
        )
    if name in OVERLOADED or number == 429 or number >= 500:
        return _overloaded(name, number, place, operation)
    if number in (401, 403) or name == "AccessDenied":
        return MailboxDenied(f"{place} denied {operation} ({name}); grant the permission {PERMISSIONS[operation]}")
    if name in CHECKSUMS:
        return MailboxMisconfigured(
            f"{place} rejected {operation} ({_message(error)}); try the checksums `when_required`"
        )
    return MailboxMisconfigured(
        f"{place} rejected {operation} ({number} {_message(error)}); check the endpoint and region"
    )


PERMISSIONS = {
    "put_if_absent": "s3:PutObject",
    "get": "s3:GetObject and s3:ListBucket",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}


def _overloaded(name: str, number: int, place: Place, operation: str) -> MailboxUnavailable:
    if number == 507 or "StorageFull" in name or "QuotaExceeded" in name:
        return MailboxUnavailable(f"{place} is full ({name}); free some space and try again")
    answer = name if name == str(number) else f"{number} {name}"
    return MailboxUnavailable(f"{place} could not serve {operation} now ({answer}); try again")


def _insecure(error: Exception, place: Place) -> MailboxError:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "doesn't match" in text:
        return MailboxMisconfigured(
            f"the certificate of {place} is not trusted; set AWS_CA_BUNDLE to its authority's file"
        )
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text.lower():
        return MailboxMisconfigured(f"{place} does not speak TLS; use an endpoint that starts with http://")
    return MailboxUnavailable(f"the secure connection to {place} failed ({_first_line(error)}); try again")


def _right_region(error: ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response.get("Error", {}).get("Region")
    return f", {region}" if region else ""


def _message(error: ClientError) -> str:
    return f"{code(error)}: {error.response.get('Error', {}).get('Message', 'no message')}"


def _first_line(error: Exception) -> str:
    """Return what the error says first; the line after it too, where the first one only announces that."""
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
