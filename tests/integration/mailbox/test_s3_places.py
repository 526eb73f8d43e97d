"""What a user is told who names the wrong place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from gradientmail.mailbox import (
    MailboxDenied,
    MailboxMisconfigured,
    MailboxNotFound,
    MailboxUnavailable,
    S3Options,
    open_mailbox,
)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def told(url: str, options: S3Options, kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        open_mailbox(url, s3=options).put_if_absent("a", b"")
    message = str(raised.value)
    assert type(raised.value) is kind
    assert "\n" not in message
    return message


def test_the_service_that_the_environment_names_is_named(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    message = told("s3://no-such-bucket/run", S3Options(), MailboxNotFound)
    assert message.startswith(f"bucket 'no-such-bucket' at {s3_server} does not exist")


def test_a_missing_bucket(s3_server: str) -> None:
    message = told("s3://no-such-bucket/run", S3Options(endpoint_url=s3_server), MailboxNotFound)
    assert message == (
        f"bucket 'no-such-bucket' at {s3_server} does not exist; create it or correct the mailbox URL and endpoint"
    )


def test_an_endpoint_where_nobody_listens(s3_server: str, closed_port: int) -> None:
    options = S3Options(endpoint_url=f"http://127.0.0.1:{closed_port}", attempts=2)
    message = told("s3://bucket/run", options, MailboxUnavailable)
    assert message.startswith(f"bucket 'bucket' at http://127.0.0.1:{closed_port} did not answer put_if_absent (")
    assert message.endswith("check the endpoint or try again")


def test_an_endpoint_that_never_answers(s3_server: str, silent_port: int) -> None:
    options = S3Options(endpoint_url=f"http://127.0.0.1:{silent_port}", attempts=1, read_timeout_seconds=0.2)
    assert "Read timeout" in told("s3://bucket/run", options, MailboxUnavailable)


def test_tls_to_a_server_without_it(s3_server: str) -> None:
    options = S3Options(endpoint_url=s3_server.replace("http:", "https:"), attempts=1)
    assert "does not speak TLS; use an endpoint that starts with http://" in told(
        "s3://bucket/run", options, MailboxMisconfigured
    )


@pytest.mark.parametrize("endpoint", ["localhost:9000", "http://", "http://in valid", "ftp//x"])
def test_a_malformed_endpoint(s3_server: str, endpoint: str) -> None:
    message = told("s3://bucket/run", S3Options(endpoint_url=endpoint, attempts=1), MailboxMisconfigured)
    assert endpoint in message
    assert message.endswith("check the mailbox URL, endpoint and region")


def test_a_bucket_name_that_cannot_be(s3_server: str) -> None:
    message = told("s3://B!/run", S3Options(endpoint_url=s3_server), MailboxMisconfigured)
    assert 'Invalid bucket name "B!"' in message


@pytest.mark.parametrize("region", ["not a region", "-"])
def test_a_region_that_cannot_be(s3_server: str, region: str) -> None:
    assert region in told("s3://bucket/run", S3Options(endpoint_url=s3_server, region=region), MailboxMisconfigured)


def test_no_credentials(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    message = told("s3://bucket/run", S3Options(endpoint_url=s3_server), MailboxDenied)
    assert message.startswith(f"no usable credentials for bucket 'bucket' at {s3_server} (")
    assert "AWS_ACCESS_KEY_ID" in message


def test_half_of_the_credentials(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "Partial credentials" in told("s3://bucket/run", S3Options(endpoint_url=s3_server), MailboxDenied)


def test_a_profile_that_does_not_exist(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    assert "absent" in told("s3://bucket/run", S3Options(endpoint_url=s3_server), MailboxDenied)


def test_threads_that_start_together_share_one_client(s3_server: str, bucket: str) -> None:
    box = open_mailbox(f"s3://{bucket}/run", s3=S3Options(endpoint_url=s3_server))
    meeting, answers = threading.Barrier(8), []

    def create() -> None:
        meeting.wait(30)
        answers.append(box.put_if_absent("a", b""))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]
