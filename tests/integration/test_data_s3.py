"""Token files on S3, against a server."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import boto3
import numpy as np
import pytest
from botocore.exceptions import ClientError
from mypy_boto3_s3 import S3Client

from gradientmail.mailbox import MailboxUnavailable, S3Options
from gradientmail.patterns.retrying import Patience, Stopped
from gradientmail.training.data.corpus import Corpus, open_corpus
from gradientmail.training.data.errors import CorpusError, CorpusUnavailable
from gradientmail.training.data.s3 import BLOCK_BYTES, BlockCache, Bucket, _judged
from gradientmail.training.data.shards import header
from gradientmail.training.sequences import TokenSequences

LENGTHS = (700_000, 1, 900_000)
TOKENS = (np.arange(sum(LENGTHS)) % 65_521).astype("<u2")


@pytest.fixture
def put(s3_server: str, bucket: str) -> Callable[[str, bytes], None]:
    client = boto3.session.Session().client("s3", endpoint_url=s3_server)
    return lambda key, data: client.put_object(Bucket=bucket, Key=key, Body=data) and None


@pytest.fixture
def shards(put: Callable[[str, bytes], None]) -> np.ndarray:
    """Three shards under `data/`, and other objects around them. Returns all tokens."""
    start = 0
    for number, length in enumerate(LENGTHS):
        put(f"data/part_{number:06d}.bin", header(length) + TOKENS[start : start + length].tobytes())
        start += length
    put("data/README.md", b"text")
    put("data/nested/part.bin", b"\0\0")
    put("data/held[out]_000000.bin", header(3) + TOKENS[:3].tobytes())
    return TOKENS


def opened(server: str, where: str, seconds: float = 0.0) -> Corpus:
    patience = Patience(seconds, threading.Event().wait)
    return open_corpus(where, vocabulary=65_536, s3=S3Options(endpoint_url=server, attempts=1), patience=patience)


def counted_requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where each ranged request from now on will be noted: its offset and length."""
    spans: list[tuple[int, int]] = []
    get = Bucket._get

    def counted(bucket: Bucket, key: str, offset: int, length: int) -> bytes:
        spans.append((offset, length))
        return get(bucket, key, offset, length)

    monkeypatch.setattr(Bucket, "_get", counted)
    return spans


def test_any_span_equals_the_slice_of_all_tokens(s3_server: str, bucket: str, shards: np.ndarray) -> None:
    corpus = opened(s3_server, f"s3://{bucket}/data/part_*.bin")
    assert corpus.tokens == 1_600_001
    for start, count in ((0, 1), (699_990, 30), (1_600_000, 1), (100_000, 650_000), (523_264, 3), (800_000, 0)):
        assert np.array_equal(corpus.read(start, count), shards[start : start + count]), (start, count)


@pytest.mark.parametrize(
    ("key", "tokens"),
    [
        ("data/", 1_600_004),
        ("data/part_000002.bin", 900_000),
        ("data/part_00000[02].bin", 1_600_000),
        ("data/nested/part.bin", 1),
    ],
)
def test_folder_key_and_pattern(s3_server: str, bucket: str, shards: np.ndarray, key: str, tokens: int) -> None:
    assert opened(s3_server, f"s3://{bucket}/{key}").tokens == tokens


def test_small_reads_nearby_share_a_request(
    s3_server: str, bucket: str, shards: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = opened(s3_server, f"s3://{bucket}/data/part_000000.bin")
    spans = counted_requests(monkeypatch)
    for start in range(0, 500_000, 5_000):
        corpus.read(start, 1_000)
    assert spans == [(0, BLOCK_BYTES)]
    corpus.read(0, 600_000)
    assert spans[1:] == [(1024, 1_200_000)]


def test_few_blocks_are_kept() -> None:
    cache = BlockCache()
    reads: list[int] = []

    def block(number: int) -> bytes:
        def read() -> bytes:
            reads.append(number)
            return bytes([number]).ljust(BLOCK_BYTES)

        return cache.get("key", number, read)

    for number in [*range(8), 0, 8, 0, 1]:
        assert block(number)[:1] == bytes([number])
    assert reads == [*range(8), 8, 1]


def test_blocks_of_small_objects_are_kept_by_their_bytes() -> None:
    cache = BlockCache()
    for number in range(100):
        cache.get("key", number, lambda: bytes(40_000))
    for number in range(100):
        cache.get("key", number, lambda: pytest.fail("read again"))


def test_windows_of_shuffled_sequences_are_read_once(
    s3_server: str, bucket: str, s3_client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many requests as the corpus has megabytes, not one for each sequence."""
    tokens = (np.arange(5 * BLOCK_BYTES) % 65_521).astype("<u2")
    s3_client.put_object(Bucket=bucket, Key="large.bin", Body=tokens.tobytes())
    spans = counted_requests(monkeypatch)
    sequences = TokenSequences(opened(s3_server, f"s3://{bucket}/large.bin"), context=5_000, seed=3)
    spans.clear()  # what opening has read
    rows = np.concatenate([sequences(start, 8).numpy() for start in range(0, 1_048, 8)])
    assert sorted(rows[:, 0]) == sorted(tokens[: 1_048 * 5_000 : 5_000])
    assert sorted(spans) == [(number * BLOCK_BYTES, BLOCK_BYTES) for number in range(10)]


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("s3://{bucket}/none/", "names no object: give a token file, a folder that ends with '/'"),
        ("s3://{bucket}/data", "names no object"),
        ("s3://no-such-bucket-anywhere/a.bin", "does not exist (NoSuchBucket): check the URL and the endpoint"),
        ("s3:///a.bin", "names no bucket: use s3://BUCKET/KEY"),
    ],
)
def test_missing_data_is_named(s3_server: str, bucket: str, where: str, sentence: str) -> None:
    with pytest.raises(CorpusError) as error:
        opened(s3_server, where.format(bucket=bucket))
    assert sentence in str(error.value)


def test_truncated_shard_is_named(s3_server: str, bucket: str, put: Callable[[str, bytes], None]) -> None:
    put("cut.bin", header(100) + bytes(100))
    with pytest.raises(CorpusError, match=r"cut.bin' says that it holds 100 tokens, but its size is that of 50"):
        opened(s3_server, f"s3://{bucket}/cut.bin")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDenied", 403, CorpusError),
        ("InvalidAccessKeyId", 403, CorpusError),
        ("NoSuchKey", 404, CorpusError),
        ("InvalidRange", 416, CorpusError),
        ("SlowDown", 503, CorpusUnavailable),
        ("InternalError", 500, CorpusUnavailable),
        ("RequestTimeout", 408, CorpusUnavailable),
    ],
)
def test_only_what_passes_is_tried_again(code: str, status: int, kind: type[Exception]) -> None:
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = _judged("s3://b/k", ClientError(answer, "GetObject"))  # type: ignore[arg-type]
    assert type(error) is kind
    assert "s3://b/k" in str(error)


class Door(socketserver.ThreadingTCPServer):
    """A way to the server that is slammed in the face of the first callers."""

    daemon_threads = True

    def __init__(self, server: str, refused: int) -> None:
        self.inner = (urlsplit(server).hostname or "", urlsplit(server).port or 0)
        self.refused = refused
        super().__init__(("127.0.0.1", 0), Through)

    def verify_request(self, request: object, client_address: object) -> bool:
        self.refused -= 1
        return self.refused < 0


class Through(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Door)
        with socket.create_connection(self.server.inner) as inner:
            asking = threading.Thread(target=pump, args=(self.request, inner))
            asking.start()
            pump(inner, self.request)
            asking.join(30)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # either side may hang up
        while data := source.recv(65_536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def refusing(server: str, times: int) -> Iterator[str]:
    with Door(server, times) as door:
        thread = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{door.server_address[1]}"
        door.shutdown()
        thread.join(30)


def test_outage_is_waited_out(s3_server: str, bucket: str, shards: np.ndarray) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    with refusing(s3_server, times=3) as door:
        options = S3Options(endpoint_url=door, attempts=1)
        corpus = open_corpus(
            f"s3://{bucket}/data/part_000000.bin", vocabulary=65_536, s3=options, patience=Patience(60.0, pause)
        )
        assert corpus.read(5, 3).tolist() == [5, 6, 7]
    assert len(pauses) == 3


def test_endpoint_that_does_not_answer_is_named_after_the_limit(s3_server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(MailboxUnavailable, match=f"'s3://b/k.bin' did not answer: .*127.0.0.1:{port}"):
        opened(f"http://127.0.0.1:{port}", "s3://b/k.bin")


def test_wait_ends_when_the_node_is_to_stop(s3_server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = S3Options(endpoint_url=f"http://127.0.0.1:{port}", attempts=1)
    with pytest.raises(Stopped):
        open_corpus("s3://b/k.bin", vocabulary=9, s3=options, patience=Patience(900.0, lambda seconds: True))
