"""Which keys every store can hold: the rules that S3 and POSIX file systems have in common."""

import re

from gradientmail.mailbox.errors import InvalidKey

CONTROL = re.compile(r"[\x00-\x1f\x7f]")

MAX_KEY_BYTES = 900
"""S3 allows 1,024 bytes with the prefix of the run; the rest is left to that prefix."""

MAX_SEGMENT_BYTES = 200
"""A file name may have 255 bytes; the rest is left to temporary names."""


def problem(key: str) -> str | None:
    """Return what is wrong with a key, or None."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not key:
        return "it is empty"
    if size > MAX_KEY_BYTES:
        return f"it has {size} bytes, at most {MAX_KEY_BYTES} are allowed"
    if CONTROL.search(key):
        return "it has a control character"
    return next(filter(None, map(_segment_problem, key.split("/"))), None)


def _segment_problem(segment: str) -> str | None:
    if segment == "":
        return "it starts or ends with '/' or has '//'"
    if segment.startswith(".tmp-"):
        return "a segment starts with '.tmp-', which the file store keeps for itself"
    if segment.endswith((".", "~")):
        return f"a segment ends with {segment[-1]!r}, which the file store keeps for itself"
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        return f"a segment has over {MAX_SEGMENT_BYTES} bytes"
    return None


def check_key(key: str) -> str:
    """Return the key. Raises InvalidKey, naming the key and what is wrong with it."""
    if what := problem(key):
        raise InvalidKey(f"mailbox key {key!r} cannot be used: {what}")
    return key


def check_bound(text: str) -> str:
    """Return a listing's prefix or bound: any text that has UTF-8 bytes. Raises InvalidKey."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidKey(f"{text!r} cannot bound a listing: it is not valid Unicode") from None
    return text
