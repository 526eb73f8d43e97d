"""A mailbox in an S3 bucket, or any store that speaks S3 and honours `If-None-Match: *`.

Assumes: conditional creation is atomic, objects can be read and listed as soon as they are written, and
listings are in the order of the keys' UTF-8 bytes. `gradientmail doctor` proves all three for a given store.

Does not assume that answers arrive. A write whose answer is lost may have landed; the client then sends it
again and is told "exists" about its own object. That is why put_if_absent's answer never decides who created.

Credentials come from boto3's chain (environment, profile, pod's role) and are renewed by it. One client per process,
made at the first request, so that a store survives fork and can be pickled for spawn.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from gradientmail.mailbox.base import Observer, Page, Store
from gradientmail.mailbox.errors import MailboxError, MailboxUnavailable
from gradientmail.mailbox.keys import MAX_KEY_BYTES, problem
from gradientmail.mailbox.s3_errors import ClientFailure, Place, code, explained, status
from gradientmail.mailbox.s3_options import S3Options

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ErrorTypeDef, ListObjectsV2OutputTypeDef

MAX_PREFIX_BYTES = 1024 - MAX_KEY_BYTES - 1
PAUSE_SECONDS = 0.1
"""Longest pause before a second attempt of this module's own; it doubles with each further one."""

Result = TypeVar("Result")


class S3Store(Store):
    """Objects under `prefix` of a bucket. Threads share one pool of connections.

    Raises MailboxUnavailable for throttling, 5xx answers, time-outs and broken connections that last longer
    than `options.attempts` attempts; MailboxNotFound for a missing bucket; MailboxDenied for credentials;
    MailboxMisconfigured for the rest.
    """

    spans_processes = True

    def __init__(
        self, bucket: str, prefix: str = "", options: S3Options | None = None, *, observe: Observer | None = None
    ) -> None:
        super().__init__(observe=observe)
        if prefix and (what := _prefix_problem(prefix)):
            raise ValueError(f"mailbox prefix {prefix!r} cannot be used: {what}")
        self.bucket = bucket
        self.prefix = prefix
        self.options = options or S3Options()
        self.conflicts = 0
        """409 answers to writes so far in this process."""
        self._base = f"{prefix}/" if prefix else ""
        self._place = Place(bucket, self.options.endpoint_url, self.options.region)
        self._clients = _PerProcess(self._new_client)

    def __repr__(self) -> str:
        return f"S3Store({self.bucket!r}, {self.prefix!r})"

    def __reduce__(self) -> tuple[Callable[..., S3Store], tuple[object, ...]]:
        return S3Store, (self.bucket, self.prefix, self.options)

    def reconnected(self) -> S3Store:
        """See Store."""
        return S3Store(self.bucket, self.prefix, self.options)

    def store_time(self) -> float | None:
        """Return the store's clock, to the second, from the Date header of one listing."""
        with self._translated("list"):
            answer = self._clients.get().list_objects_v2(Bucket=self.bucket, Prefix=self._base, MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return parsedate_to_datetime(date).timestamp() if date else None

    def _create(self, key: str, data: bytes) -> bool:
        for attempt in range(self.options.attempts):
            self._pause(attempt)
            created = self._create_once(key, data)
            if created is not None:
                return created
        return self._after_conflicts(key)

    def _create_once(self, key: str, data: bytes) -> bool | None:
        """Return None for 409: another write of the key was under way, and which one lands is not known."""
        with self._translated("put_if_absent"):
            try:
                self._clients.get().put_object(Bucket=self.bucket, Key=self._base + key, Body=data, IfNoneMatch="*")
            except ClientError as error:
                if status(error) == 412:
                    return False
                if status(error) == 409:
                    self.conflicts += 1
                    return None
                raise
            return True

    def _after_conflicts(self, key: str) -> bool:
        # At least one store answers 409 to every loser of a race, so the object itself must tell.
        found = self._measured("get", lambda: self._read(key), lambda data: "missing" if data is None else "ok")
        if found is not None:
            return False
        raise MailboxUnavailable(
            f"{self._place} answered 409 (conflict) to {self.options.attempts} attempts to write {key!r}; try again"
        )

    def _read(self, key: str) -> bytes | None:
        return self._retried("get", lambda: self._read_once(key))

    def _read_once(self, key: str) -> bytes | None:
        try:
            answer = self._clients.get().get_object(Bucket=self.bucket, Key=self._base + key)
        except ClientError as error:
            if code(error) == "NoSuchKey":
                return None
            raise
        # Not `with answer["Body"]`: that hands out the raw stream, whose length and checksum nobody verifies.
        with closing(answer["Body"]) as body:
            try:
                return body.read()
            except (BotoCoreError, HTTPError) as error:
                raise _BrokenAnswer from error

    def _page(self, prefix: str, after: str) -> Page:
        answer = self._retried("list", lambda: self._list_objects(prefix, after))
        found = [item["Key"].removeprefix(self._base) for item in answer.get("Contents", ())]
        # Consoles make empty objects that end in '/' to show folders; no mailbox can have written those.
        keys = [key for key in found if problem(key) is None]
        return Page(keys, found[-1] if answer.get("IsTruncated") and found else None)

    def _list_objects(self, prefix: str, after: str) -> ListObjectsV2OutputTypeDef:
        # From the start too: that passes over the empty object by which consoles show the prefix as a folder.
        bounds = {"StartAfter": self._base + after} if self._base + after else {}
        answer = self._list_once(prefix, bounds)
        # A page may be empty although more follow; only the store's own token leads on from there.
        while answer["IsTruncated"] and not answer.get("Contents"):
            answer = self._list_once(prefix, {"ContinuationToken": answer["NextContinuationToken"]})
        return answer

    def _list_once(self, prefix: str, bounds: dict[str, Any]) -> ListObjectsV2OutputTypeDef:
        try:
            answer = self._clients.get().list_objects_v2(
                Bucket=self.bucket, Prefix=self._base + prefix, MaxKeys=self.page_keys, **bounds
            )
        except ResponseParserError as error:
            raise _BrokenAnswer from error
        if "IsTruncated" not in answer:
            # An empty body parses as a listing without keys; S3 always states whether more follow.
            raise _BrokenAnswer
        return answer

    def _remove(self, keys: Sequence[str]) -> None:
        with self._translated("delete"):
            answer = self._clients.get().delete_objects(
                Bucket=self.bucket, Delete={"Objects": [{"Key": self._base + key} for key in keys], "Quiet": True}
            )
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if failed:
            raise self._deletion_error(failed[0], len(failed), len(keys))

    def _deletion_error(self, first: ErrorTypeDef, failed: int, asked: int) -> MailboxError:
        error = ClientError(
            {"Error": {"Code": first.get("Code", ""), "Message": first.get("Message", "")}}, "DeleteObjects"
        )
        told = explained(error, self._place, "delete")
        key = first.get("Key", "").removeprefix(self._base)
        return type(told)(f"{failed} of {asked} objects were not deleted, the first being {key!r}: {told}")

    def _retried(self, operation: str, call: Callable[[], Result]) -> Result:
        """Repeat a read whose answer broke off: botocore's own retries end where the headers have arrived."""
        for attempt in range(self.options.attempts):
            self._pause(attempt)
            with self._translated(operation), suppress(_BrokenAnswer):
                return call()
        raise MailboxUnavailable(
            f"{self._place} broke off {self.options.attempts} answers to {operation} in the middle; try again"
        )

    @staticmethod
    def _pause(attempt: int) -> None:
        if attempt:
            time.sleep(random.uniform(0, PAUSE_SECONDS * 2 ** (attempt - 1)))

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except ClientFailure as error:
            raise explained(error, self._place, operation) from error

    def _new_client(self) -> S3Client:
        try:
            client = connect(self.options)
        except (ValueError, *ClientFailure) as error:  # ValueError: a malformed endpoint or region
            raise explained(error, self._place, "open") from error
        # The environment or a profile may name another service than the options do.
        self._place = self._place.reached_at(client.meta.endpoint_url)
        return client


def connect(options: S3Options) -> S3Client:
    """Return a client with the options' endpoint, time-outs and retries. Makes no request. Raises botocore's errors."""
    # A session of its own: other threads may be making clients too, which one session does not allow.
    session = botocore.session.get_session()
    session.register_component("data_loader", _service_models())
    client = session.create_client(
        "s3", region_name=options.region, endpoint_url=options.endpoint_url, config=_client_config(options)
    )
    if options.checksums == "when_required":
        client.meta.events.register("before-call.s3.DeleteObjects", _add_content_md5)
    return cast("S3Client", client)


class _BrokenAnswer(Exception):
    """The answer began and did not arrive whole."""


class _PerProcess(Generic[Result]):
    """One value per process, made at its first use there: sockets must not be shared across a fork."""

    def __init__(self, make: Callable[[], Result]) -> None:
        self._make = make
        self._state: tuple[int, threading.Lock, list[Result]] = (os.getpid(), threading.Lock(), [])

    def get(self) -> Result:
        process, lock, made = self._state
        if process != os.getpid():
            # Another thread may have held the lock at the fork: the child takes a new one.
            self._state = _, lock, made = os.getpid(), threading.Lock(), []
        with lock:
            if not made:
                made.append(self._make())
            return made[0]


@cache
def _service_models() -> Loader:
    """Return S3's description, shared by all clients: reading it is most of the cost of a client."""
    return botocore.loaders.create_loader()


def _client_config(options: S3Options) -> Config:
    return Config(
        connect_timeout=options.connect_timeout_seconds,
        read_timeout=options.read_timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": options.attempts},
        request_checksum_calculation=options.checksums,
        response_checksum_validation=options.checksums,
        s3={"addressing_style": options.addressing_style},
        max_pool_connections=options.connections,
        tcp_keepalive=True,
        user_agent_extra=f"gradientmail/{_own_version()}",
    )


def _own_version() -> str:
    try:
        return version("gradientmail")
    except PackageNotFoundError:
        return "unknown"


def _add_content_md5(params: dict[str, Any], **_: object) -> None:
    """Older stores demand this header on deletions and do not know the newer checksums."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _prefix_problem(prefix: str) -> str | None:
    size = len(prefix.encode())
    return (
        f"it has {size} bytes, at most {MAX_PREFIX_BYTES} are allowed" if size > MAX_PREFIX_BYTES else problem(prefix)
    )
