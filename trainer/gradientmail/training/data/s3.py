"""Token files on S3: listing them and reading spans of bytes with ranged requests.

Assumes GET with Range and ListObjectsV2, as every S3-compatible store has. Does not assume that a
started answer comes to its end: a cut answer is requested again. Fails with CorpusError where the
bucket, key or credentials are wrong, with MailboxUnavailable once the store has not answered
properly for as long as the Patience given allows, and with Stopped if its pause is cut short.
"""

from __future__ import annotations

import fnmatch
import glob
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from gradientmail.mailbox import S3Options
from gradientmail.mailbox.s3 import connect
from gradientmail.mailbox.s3_errors import code, status
from gradientmail.patterns.retrying import Patience
from gradientmail.training.data.errors import CorpusError, CorpusUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

Result = TypeVar("Result")

BLOCK_BYTES = 1 << 20
CACHED_BYTES = 8 * BLOCK_BYTES

MISSING = {"NoSuchBucket", "NoSuchKey", "404", "NotFound"}
DENIED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}


class BlockCache:
    """The blocks read last, over all objects of a corpus. Thread-safe; at most CACHED_BYTES, and the one read last."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str, number: int, read: Callable[[], bytes]) -> bytes:
        """Return a block, reading it if it is not kept."""
        with self._lock:
            block = self._blocks.get((key, number))
            if block is not None:
                self._blocks.move_to_end((key, number))
                return block
        block = read()
        with self._lock:
            self._bytes += len(block) - len(self._blocks.pop((key, number), b""))
            self._blocks[key, number] = block
            while self._bytes > CACHED_BYTES and len(self._blocks) > 1:
                self._bytes -= len(self._blocks.popitem(last=False)[1])
        return block


@dataclass(frozen=True)
class Bucket:
    """A bucket seen through one client, for listing and for reading."""

    client: S3Client
    name: str
    patience: Patience
    cache: BlockCache = field(default_factory=BlockCache)

    def find(self, key: str) -> list[S3Object]:
        """Return the objects that a key, a folder `…/` (its `*.bin`) or a pattern names, sorted. Raises CorpusError."""
        where = f"s3://{self.name}/{key}"
        listed = self.patience.call(lambda: _explained(where, lambda: self._list(_literal_start(key))))
        found = [S3Object(self, name, size) for name, size in sorted(listed.items()) if _named(name, key)]
        if not found:
            raise CorpusError(
                f"{where!r} names no object: give a token file, a folder that ends with '/' and has *.bin files, "
                "or a pattern"
            )
        return found

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Return a span of an object's bytes with one ranged request, repeated while the store does not answer."""
        where = f"s3://{self.name}/{key}"
        return self.patience.call(lambda: _explained(where, lambda: self._get(key, offset, length)))

    def _list(self, prefix: str) -> dict[str, int]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}

    def _get(self, key: str, offset: int, length: int) -> bytes:
        span = f"bytes={offset}-{offset + length - 1}"
        data = self.client.get_object(Bucket=self.name, Key=key, Range=span)["Body"].read()
        if len(data) != length:
            raise CorpusUnavailable(f"s3://{self.name}/{key} gave {len(data):,} bytes where {length:,} were asked for")
        return data


@dataclass(frozen=True)
class S3Object:
    """A token file on S3.

    Spans shorter than a block are read by whole blocks, of which the last few are kept, because
    the next steps' spans are usually close by. Longer ones are read as they are.
    """

    bucket: Bucket
    key: str
    size: int

    @property
    def name(self) -> str:
        """The object's URL."""
        return f"s3://{self.bucket.name}/{self.key}"

    def head(self, length: int) -> bytes:
        """See Source."""
        return self.bucket.read(self.key, 0, min(length, self.size)) if self.size else b""

    def read(self, offset: int, length: int) -> bytes:
        """See Source."""
        if length >= BLOCK_BYTES:
            return self.bucket.read(self.key, offset, length)
        first, last = offset // BLOCK_BYTES, (offset + length - 1) // BLOCK_BYTES
        joined = b"".join(self._block(number) for number in range(first, last + 1))
        start = offset - first * BLOCK_BYTES
        return joined[start : start + length]

    def _block(self, number: int) -> bytes:
        start = number * BLOCK_BYTES
        length = min(BLOCK_BYTES, self.size - start)
        return self.bucket.cache.get(self.key, number, lambda: self.bucket.read(self.key, start, length))


def find_s3(where: str, options: S3Options, patience: Patience) -> list[S3Object]:
    """Return the objects that an `s3://` URL names. Raises CorpusError or MailboxUnavailable."""
    bucket, _, key = where.removeprefix("s3://").partition("/")
    if not bucket:
        raise CorpusError(f"{where!r} names no bucket: use s3://BUCKET/KEY")
    return Bucket(connect(options), bucket, patience).find(key)


def _named(key: str, wanted: str) -> bool:
    if not wanted or wanted.endswith("/"):
        name = key.removeprefix(wanted)
        return name.endswith(".bin") and "/" not in name
    return fnmatch.fnmatchcase(key, wanted) if glob.has_magic(wanted) else key == wanted


def _literal_start(pattern: str) -> str:
    stop = next((index for index, character in enumerate(pattern) if character in "*?["), len(pattern))
    return pattern[:stop]


def _explained(where: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CorpusError(
            f"{where!r} could not be read: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    except ClientError as error:
        raise _judged(where, error) from error
    except (BotoCoreError, OSError) as error:
        raise CorpusUnavailable(f"{where!r} did not answer: {error}") from error


def _judged(where: str, error: ClientError) -> Exception:
    name, number = code(error), status(error)
    if name in MISSING:
        return CorpusError(f"{where!r} does not exist ({name}): check the URL and the endpoint")
    if name in DENIED:
        return CorpusError(f"{where!r} may not be read ({name}): check the credentials and the bucket's policy")
    if number < 500 and number not in (408, 409, 429):
        return CorpusError(f"{where!r} could not be read: {error}")
    return CorpusUnavailable(f"{where!r} did not answer properly: {error}")
