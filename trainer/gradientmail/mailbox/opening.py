"""From a URL to a mailbox."""

from __future__ import annotations

from urllib.parse import unquote

from gradientmail.mailbox.base import Store
from gradientmail.mailbox.s3_options import S3Options

FORMS = "s3://BUCKET/PREFIX, file:///FOLDER or memory:NAME"


def open_mailbox(url: str, *, s3: S3Options | None = None) -> Store:
    """Open the mailbox at `s3://bucket/prefix`, `file:///path` or `memory:NAME`. Makes no request.

    `memory:NAME` is one mailbox per process and name. Raises ValueError for any other URL.
    """
    scheme = url.partition(":")[0]
    if scheme == "s3":
        return _open_s3(url, s3 or S3Options())
    if scheme == "file":
        return _open_file(url)
    if scheme == "memory":
        from gradientmail.mailbox.memory import named

        return named(url.removeprefix("memory:"))
    raise ValueError(f"mailbox URL {url!r} is not understood: use {FORMS}")


def _open_file(url: str) -> Store:
    from gradientmail.mailbox.file import FileStore

    rest = url.removeprefix("file:")
    path = unquote(rest.removeprefix("//localhost").removeprefix("//"))
    if not path.startswith("/") or not path.strip("/"):
        raise ValueError(f"mailbox URL {url!r} names no folder: use file:///FOLDER, with the folder's whole path")
    if "\0" in path:
        raise ValueError(f"mailbox URL {url!r} names no folder: a path cannot hold the character NUL")
    return FileStore(path)


def _open_s3(url: str, options: S3Options) -> Store:
    from gradientmail.mailbox.s3 import S3Store

    bucket, _, prefix = url.removeprefix("s3:").removeprefix("//").partition("/")
    if not bucket or not url.startswith("s3://"):
        raise ValueError(f"mailbox URL {url!r} names no bucket: use s3://BUCKET/PREFIX")
    return S3Store(bucket, prefix.strip("/"), options)
