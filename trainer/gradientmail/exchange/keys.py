"""Keys of the exchange's objects under a run's prefix.

`exchange/blobs/` sorts before everything else, so that one listing after it shows who takes part
and how every round stands, without the blobs.
"""

from __future__ import annotations

EXCHANGE = "exchange/"
RUN = "exchange/run.json"
"""The Founding: what all nodes of the run have agreed on."""
BLOBS = "exchange/blobs/"
"""`exchange/blobs/{fragment}/{version}/{sha256}.safetensors`."""
MEMBERS = "exchange/members/"
"""`exchange/members/{learner}`: a Member; deleted when it leaves."""
ROUNDS = "exchange/rounds/"
"""`exchange/rounds/{fragment}/{version}/contributions/{learner}`, and `.../version` once the round is closed."""
STATE_AFTER = "exchange/c"
"""Listing EXCHANGE after this leaves out the blobs."""


def member_key(learner: str) -> str:
    """Return the key of a learner's membership."""
    return f"{MEMBERS}{learner}"


def contribution_key(fragment: int, version: int, learner: str) -> str:
    """Return the key of what a learner offers to the round that makes `version`."""
    return f"{ROUNDS}{fragment:04d}/{version:010d}/contributions/{learner}"


def version_key(fragment: int, version: int) -> str:
    """Return the key of the record that closes a round; of any number of closers one creates it."""
    return f"{ROUNDS}{fragment:04d}/{version:010d}/version"


def fragment_blobs(fragment: int) -> str:
    """Return what the keys of a fragment's blobs start with."""
    return f"{BLOBS}{fragment:04d}/"


def blob_key(fragment: int, version: int, digest: str) -> str:
    """Return the key of a blob made for the round of `version`; `digest` is the SHA-256 of its bytes."""
    return f"{fragment_blobs(fragment)}{version:010d}/{digest}.safetensors"


def blob_version(key: str) -> int | None:
    """Return for which version a blob was made, or None if the key is not one of a blob."""
    parts = key.split("/")
    return int(parts[3]) if len(parts) == 5 and parts[3].isdigit() else None
