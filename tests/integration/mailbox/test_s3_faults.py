"""The S3 mailbox when the wire or the service fails. The client makes two attempts (see the fixture `proxied`)."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from mypy_boto3_s3 import S3Client

from gradientmail.mailbox import (
    MailboxDenied,
    MailboxMisconfigured,
    MailboxUnavailable,
    MailboxUnsuitable,
    Request,
    S3Options,
    Store,
    open_mailbox,
)
from gradientmail.mailbox.s3 import S3Store
from tests.integration.mailbox.proxy import (
    Answer,
    Exchange,
    Fault,
    ProxyServer,
    answer_html,
    break_off,
    empty_body,
    garble,
    hang_up,
    land_then_refuse,
    lose_answer,
    refuse,
)

CONFLICT = refuse(409, "ConditionalRequestConflict")


def test_a_write_whose_answer_was_lost_is_answered_exists_about_itself(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", lose_answer)
    assert proxied.put_if_absent("units/0", b"node-0") is False
    assert proxy.count("PUT") == 2
    assert proxied.get("units/0") == b"node-0"


def test_a_write_whose_answers_are_all_lost_is_unavailable_and_has_landed(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", lose_answer, count=2)
    with pytest.raises(MailboxUnavailable, match="did not answer put_if_absent"):
        proxied.put_if_absent("units/0", b"node-0")
    assert proxied.get("units/0") == b"node-0"


def test_a_write_that_landed_behind_a_500_is_answered_exists(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", land_then_refuse(500, "InternalError"))
    assert proxied.put_if_absent("units/0", b"node-0") is False
    assert proxied.get("units/0") == b"node-0"


def test_a_conflict_is_tried_again_and_then_creates(proxy: ProxyServer, proxied: S3Store) -> None:
    proxy.add("PUT", CONFLICT)
    assert proxied.put_if_absent("units/0", b"node-0") is True
    assert proxy.count("PUT") == 2
    assert proxied.conflicts == 1


def test_lasting_conflicts_are_settled_by_reading(proxy: ProxyServer, proxied: Store) -> None:
    proxied.put_if_absent("units/0", b"node-0")
    requests: list[Request] = []
    proxied.observe = requests.append
    proxy.add("PUT", CONFLICT, count=None)
    assert proxied.put_if_absent("units/0", b"node-1") is False
    assert [(request.operation, request.outcome) for request in requests] == [
        ("get", "ok"),
        ("put_if_absent", "exists"),
    ]


def test_lasting_conflicts_about_no_object_are_unavailable(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", CONFLICT, count=None)
    with pytest.raises(MailboxUnavailable, match=r"answered 409 \(conflict\) to 2 attempts to write 'units/0'"):
        proxied.put_if_absent("units/0", b"node-0")
    assert proxy.count("PUT") == 2
    assert proxied.get("units/0") is None


VERBS = [("PUT", "put_if_absent"), ("GET", "get"), ("GET", "list"), ("POST", "delete")]
FAULTS: list[tuple[Fault, str]] = [
    (refuse(500, "InternalError"), "could not serve {} now (500 InternalError); try again"),
    (hang_up, "did not answer {} ("),
]
THROTTLED: list[tuple[Fault, str]] = [  # for one verb only: the client pauses for up to a second
    (refuse(503, "SlowDown"), "could not serve {} now (503 SlowDown); try again"),
    (refuse(429, "TooManyRequests"), "could not serve {} now (429 TooManyRequests); try again"),
]


@pytest.mark.parametrize(
    ("method", "operation", "fault", "message"),
    [
        *((*verb, *fault) for verb in VERBS for fault in FAULTS),
        *(("GET", "get", *fault) for fault in THROTTLED),
    ],
)
def test_each_verb_survives_one_failure_and_reports_a_lasting_one(
    proxy: ProxyServer, proxied: Store, method: str, operation: str, fault: Fault, message: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "put_if_absent": lambda: proxied.put_if_absent("a", b"1"),
        "get": lambda: proxied.get("a"),
        "list": lambda: list(proxied.list()),
        "delete": lambda: proxied.delete(["a"]),
    }
    proxy.add(method, fault)
    calls[operation]()
    assert proxy.count(method) == 2
    proxy.add(method, fault, count=2)
    with pytest.raises(MailboxUnavailable) as raised:
        calls[operation]()
    assert message.format(operation) in str(raised.value)
    assert proxy.count(method) == 4


def test_an_object_that_breaks_off_is_read_again(proxy: ProxyServer, proxied: Store) -> None:
    proxied.put_if_absent("model", b"0123456789" * 1000)
    proxy.add("GET", break_off(5000))
    assert proxied.get("model") == b"0123456789" * 1000
    assert proxy.count("GET") == 2


def test_a_garbled_object_is_read_again(proxy: ProxyServer, proxied: Store) -> None:
    proxied.put_if_absent("model", b"0123456789")
    proxy.add("GET", garble)
    assert proxied.get("model") == b"0123456789"
    assert proxy.count("GET") == 2


def test_an_object_that_always_breaks_off_is_never_returned(proxy: ProxyServer, proxied: Store) -> None:
    proxied.put_if_absent("model", b"0123456789" * 1000)
    proxy.add("GET", break_off(5000), count=2)
    with pytest.raises(MailboxUnavailable, match="broke off 2 answers to get in the middle"):
        proxied.get("model")


@pytest.mark.parametrize("fault", [break_off(200), empty_body, answer_html], ids=["broken off", "empty", "HTML"])
def test_a_listing_that_is_not_whole_is_asked_for_again_and_never_taken_for_short(
    proxy: ProxyServer, proxied: Store, fault: Fault
) -> None:
    proxied.put_if_absent("a", b"")
    proxy.add("GET", fault)
    assert list(proxied.list()) == ["a"]
    proxy.add("GET", fault, count=2)
    with pytest.raises(MailboxUnavailable, match=r"broke off 2 answers to list|could not serve list now \(500\)"):
        list(proxied.list())


def test_a_store_without_conditional_writes_is_unsuitable(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", refuse(501, "NotImplemented"))
    with pytest.raises(MailboxUnsuitable, match="lacks conditional writes"):
        proxied.put_if_absent("a", b"")
    assert proxy.count("PUT") == 1


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (403, "AccessDenied", MailboxDenied, "denied put_if_absent (AccessDenied); grant the permission s3:PutObject"),
        (403, "InvalidAccessKeyId", MailboxDenied, "does not know the access key; check AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", MailboxDenied, "the secret key does not match the access key"),
        (400, "ExpiredToken", MailboxDenied, "the credentials have expired; renew them"),
        (403, "RequestTimeTooSkewed", MailboxMisconfigured, "this machine's clock wrong by over 15 minutes"),
        (301, "PermanentRedirect", MailboxMisconfigured, "is in another region"),
        (400, "InvalidRequest", MailboxMisconfigured, "try the checksums `when_required`"),
    ],
)
def test_what_cannot_get_better_is_told_at_once(
    proxy: ProxyServer, proxied: Store, status: int, code: str, kind: type[Exception], message: str
) -> None:
    proxy.add("PUT", refuse(status, code), count=None)
    with pytest.raises(kind) as raised:
        proxied.put_if_absent("a", b"")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)
    assert proxy.count("PUT") == 1


def test_a_deletion_that_fails_for_some_keys_says_so(proxy: ProxyServer, proxied: Store, s3_client: S3Client) -> None:
    def deny_one(exchange: Exchange) -> None:
        error = b"<Error><Key>run/b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
        exchange.answer(Answer(200, (), b"<DeleteResult>" + error + b"</DeleteResult>"))

    proxy.add("POST", deny_one)
    with pytest.raises(MailboxDenied, match=r"1 of 2 objects were not deleted, the first being 'b'.*s3:DeleteObject"):
        proxied.delete(["a", "b"])


def test_requests_carry_the_condition_a_checksum_and_our_name(proxy: ProxyServer, proxied: Store) -> None:
    proxied.put_if_absent("a", b"1")
    headers = proxy.headers("PUT")
    assert headers["If-None-Match"] == "*"
    assert "x-amz-checksum-crc32" in {name.lower() for name in headers}
    assert "gradientmail/" in headers["User-Agent"]


def test_checksums_can_be_left_to_what_older_stores_know(proxy: ProxyServer, bucket: str) -> None:
    box = open_mailbox(f"s3://{bucket}/run", s3=S3Options(endpoint_url=proxy.url, checksums="when_required"))
    box.put_if_absent("a", b"1")
    box.delete(["a"])
    assert box.get("a") is None
    assert not any(name.lower().startswith("x-amz-checksum") for name in proxy.headers("PUT"))
    assert len(proxy.headers("POST")["Content-MD5"]) == 24


def test_what_others_leave_in_the_bucket_is_not_listed(proxied: Store, bucket: str, s3_client: S3Client) -> None:
    for key in ("run/", "run/units/", "runner/a", "other", "run/units/0"):
        s3_client.put_object(Bucket=bucket, Key=key, Body=b"")
    proxied.page_keys = 1
    assert list(proxied.list()) == ["units/0"]


def test_a_mailbox_may_be_the_whole_bucket(s3_server: str, bucket: str) -> None:
    box = open_mailbox(f"s3://{bucket}", s3=S3Options(endpoint_url=s3_server))
    assert box.put_if_absent("a", b"1")
    assert list(box.list()) == ["a"]


def test_the_stores_clock_is_read(proxied: Store) -> None:
    stated = proxied.store_time()
    assert stated is not None
    assert abs(stated - time.time()) < 5


def put_from_elsewhere(box: Store, key: str, answers: Connection) -> None:
    answers.send(box.put_if_absent(key, b"child"))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons advise against fork
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_used_mailbox_works_in_a_child_process_over_a_connection_of_its_own(
    proxy: ProxyServer, proxied: Store, method: str
) -> None:
    assert proxied.put_if_absent("mine", b"parent")
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=put_from_elsewhere, args=(proxied, "other", sender))  # type: ignore[attr-defined]
    child.start()
    assert receiver.poll(60)
    assert receiver.recv() is True
    child.join(30)
    assert child.exitcode == 0
    assert proxied.get("other") == b"child"
    parents, childs, parents_again = proxy.peers
    assert childs != parents
    assert parents_again == parents
