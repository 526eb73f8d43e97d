from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradientmail.mailbox import S3Options, open_mailbox
from gradientmail.mailbox.file import FileStore
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.mailbox.s3 import S3Store


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/runs/first/", "bucket", "runs/first"),
        ("s3://bucket/a b#c?d%20", "bucket", "a b#c?d%20"),
    ],
)
def test_s3_urls_are_taken_as_they_stand(url: str, bucket: str, prefix: str) -> None:
    box = open_mailbox(url, s3=S3Options(endpoint_url="http://localhost:1"))
    assert isinstance(box, S3Store)
    assert (box.bucket, box.prefix, box.options.endpoint_url) == (bucket, prefix, "http://localhost:1")


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///runs/first", "/runs/first"),
        ("file:/runs/first", "/runs/first"),
        ("file://localhost/runs/first", "/runs/first"),
        ("file:///a%20b", "/a b"),
        ("file:///a#b?c", "/a#b?c"),
    ],
)
def test_file_urls_name_a_whole_path(url: str, root: str) -> None:
    box = open_mailbox(url)
    assert isinstance(box, FileStore)
    assert box.root == Path(root)


def test_memory_mailboxes_are_one_for_each_name() -> None:
    assert isinstance(open_mailbox("memory:"), MemoryStore)
    assert open_mailbox("memory:opening-a") is open_mailbox("memory:opening-a")
    assert open_mailbox("memory:opening-a") is not open_mailbox("memory:opening-b")
    assert open_mailbox("memory://a") is not open_mailbox("memory://b")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "mailbox URL '' is not understood: use s3://BUCKET/PREFIX, file:///FOLDER or memory:NAME"),
        ("runs/first", "mailbox URL 'runs/first' is not understood: use s3://BUCKET/PREFIX"),
        ("gs://bucket/x", "mailbox URL 'gs://bucket/x' is not understood"),
        ("s3://", "mailbox URL 's3://' names no bucket: use s3://BUCKET/PREFIX"),
        ("s3:///runs", "mailbox URL 's3:///runs' names no bucket"),
        ("s3:bucket/runs", "mailbox URL 's3:bucket/runs' names no bucket"),
        ("file://runs/first", "mailbox URL 'file://runs/first' names no folder: use file:///FOLDER"),
        ("file:///", "mailbox URL 'file:///' names no folder"),
        ("file:///a%00b", "names no folder: a path cannot hold the character NUL"),
        ("s3://bucket/a//b", "mailbox prefix 'a//b' cannot be used: it starts or ends with '/' or has '//'"),
        ("s3://bucket/" + "x" * 124, "it has 124 bytes, at most 123 are allowed"),
    ],
)
def test_other_urls_are_refused_with_the_forms_that_are_known(url: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        open_mailbox(url)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, "attempts=0, connections=32: both must be 1 or more"),
        ({"connections": 0}, "attempts=4, connections=0: both must be 1 or more"),
        ({"read_timeout_seconds": 0.0}, "time-outs must be above 0 seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        S3Options(**options)
