"""Tensors as safetensors bytes, keyed by SHA-256, and back: anything else is refused by name."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from gradientmail.exchange.keys import blob_key
from gradientmail.exchange.records import TensorShape
from gradientmail.mailbox import Mailbox

Shapes = Sequence[TensorShape]
Item = TypeVar("Item")
Result = TypeVar("Result")

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}
ALIGNMENT = 8
"""Of the tensors in a safetensors file, in bytes."""


class BlobRefused(ValueError):
    """A blob is not what its key promises; the message names the key and what is wrong."""


def split(flat: Tensor, shapes: Shapes) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter's name and its view of a flat tensor."""
    ends = list(itertools.accumulate(item.size for item in shapes))
    for item, end in zip(shapes, ends, strict=True):
        yield item.name, flat[end - item.size : end].view(item.shape)


def encode(flat: Tensor, shapes: Shapes) -> bytes:
    """Return a fragment's flat CPU tensor as safetensors bytes.

    As the library does, but with one copy instead of three: the parameters already lie one after the other.
    """
    header: dict[str, object] = {}
    start = 0
    for item in shapes:
        stop = start + item.size * flat.element_size()
        header[item.name] = {"dtype": NAMES[flat.dtype], "shape": list(item.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join((len(text).to_bytes(8, "little"), text, flat.view(torch.uint8).numpy().data))


def decode(key: str, data: bytes, digest: str, shapes: Shapes, dtype: torch.dtype) -> Tensor:
    """Return a fragment's flat tensor. Raises BlobRefused unless data have this digest, these shapes and this type."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise BlobRefused(f"{key} is damaged: its {len(data)} bytes do not have the SHA-256 in its name")
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise BlobRefused(f"{key} is not a safetensors file: {error}") from None
    if tensors.keys() != {item.name for item in shapes}:
        odd = sorted(tensors.keys() ^ {item.name for item in shapes})
        raise BlobRefused(f"{key} holds other parameters than the fragment: {odd[0]!r} is in only one of them")
    for item in shapes:
        found = tensors[item.name]
        if tuple(found.shape) != item.shape or found.dtype != dtype:
            raise BlobRefused(
                f"{key} holds {item.name!r} as {found.dtype} {list(found.shape)}, "
                f"where {dtype} {list(item.shape)} was expected"
            )
    flat = torch.cat([tensors[item.name].reshape(-1) for item in shapes])
    if not finite(flat):
        raise BlobRefused(f"{key} holds numbers that are not finite")
    return flat


def finite(flat: Tensor) -> bool:
    """Whether all numbers are finite. Needs no memory of its own, unlike `isfinite`."""
    if flat.numel() == 0:
        return True
    least, most = torch.aminmax(flat)
    return math.isfinite(least) and math.isfinite(most)


class BlobStore:
    """Fragments as blobs in a mailbox; counts their bytes.

    call: repeats a request while the store is unavailable.
    at_once: how many blobs of one merge are read or written at the same time; all of them are then in memory.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        layout: Sequence[Shapes],
        call: Callable[[Callable[[], bytes | None]], bytes | None] = lambda request: request(),
        at_once: int = 1,
    ) -> None:
        self._mailbox = mailbox
        self._layout = layout
        self._call = call
        self._counting = threading.Lock()
        self._threads = ThreadPoolExecutor(at_once, "session-blob") if at_once > 1 else None
        self.sent_bytes = 0
        self.received_bytes = 0

    def write(self, fragment: int, version: int, flat: Tensor) -> str:
        """Write a flat tensor; return its digest."""
        data = encode(flat, self._layout[fragment])
        digest = hashlib.sha256(data).hexdigest()
        key = blob_key(fragment, version, digest)

        def request() -> None:
            self._mailbox.put_if_absent(key, data)

        self._call(request)
        with self._counting:
            self.sent_bytes += len(data)
        return digest

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield what comes of reading or writing each item, in their order: one by one, or at the same time."""
        return map(work, items) if self._threads is None else self._threads.map(work, items)

    def close(self) -> None:
        """End the threads that read and write at the same time."""
        if self._threads is not None:
            self._threads.shutdown()

    def read(self, fragment: int, version: int, digest: str, dtype: torch.dtype) -> Tensor | None:
        """Return a flat tensor, or None if there is no such blob. Raises BlobRefused."""
        key = blob_key(fragment, version, digest)
        data = self._call(lambda: self._mailbox.get(key))
        if data is None:
            return None
        with self._counting:
            self.received_bytes += len(data)
        return decode(key, data, digest, self._layout[fragment], dtype)
