"""Blobs are plain safetensors files, and nothing else is read as one."""

from __future__ import annotations

import hashlib

import pytest
import torch
from safetensors.torch import load, save

from gradientmail.exchange.blobs import BlobRefused, decode, encode, finite
from gradientmail.exchange.records import TensorShape

SHAPES = (
    TensorShape("layer.weight", (2, 3), "float32"),
    TensorShape("scale", (), "float32"),
    TensorShape("é", (4,), "x"),
)


def decoded(data: bytes, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return decode("a key", data, hashlib.sha256(data).hexdigest(), SHAPES, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_library_reads_what_is_written_and_back(dtype: torch.dtype) -> None:
    flat = torch.arange(11).to(dtype)
    data = encode(flat, SHAPES)
    tensors = load(data)
    assert {name: list(value.shape) for name, value in tensors.items()} == {
        "layer.weight": [2, 3],
        "scale": [],
        "é": [4],
    }
    assert tensors["é"].tolist() == [7.0, 8.0, 9.0, 10.0]
    assert torch.equal(decoded(data, dtype), flat)
    assert torch.equal(decoded(save(tensors), dtype), flat), "another writer's order of tensors does not matter"


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({"layer.weight": torch.zeros(2, 3), "scale": torch.zeros(())}, "'é' is in only one of them"),
        (
            {"layer.weight": torch.zeros(3, 2), "scale": torch.zeros(()), "é": torch.zeros(4)},
            r"holds 'layer.weight' as torch.float32 \[3, 2\], where torch.float32 \[2, 3\] was expected",
        ),
        (
            {"layer.weight": torch.zeros(2, 3).half(), "scale": torch.zeros(()), "é": torch.zeros(4)},
            r"as torch.float16 \[2, 3\], where torch.float32",
        ),
        (
            {"layer.weight": torch.zeros(2, 3), "scale": torch.tensor(float("nan")), "é": torch.zeros(4)},
            "numbers that are not finite",
        ),
    ],
)
def test_what_is_not_the_fragment_is_refused_by_name(tensors: dict[str, torch.Tensor], told: str) -> None:
    with pytest.raises(BlobRefused, match=f"a key .*{told}"):
        decoded(save(tensors))


@pytest.mark.parametrize("data", [b"", b"\xff" * 16, b"\x80\x04N.", encode(torch.zeros(11), SHAPES)[:-1]])
def test_what_is_no_safetensors_file_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(BlobRefused, match="a key is not a safetensors file"):
        decoded(data)


def test_a_digest_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BlobRefused, match="a key is damaged: its 3 bytes do not have the SHA-256 in its name"):
        decode("a key", b"abc", "0" * 64, SHAPES, torch.float32)


@pytest.mark.parametrize(
    ("value", "holds"), [(1.0, True), (float("inf"), False), (float("-inf"), False), (float("nan"), False)]
)
def test_finite(value: float, holds: bool) -> None:
    assert finite(torch.tensor([0.0, value, 2.0])) is holds
    assert finite(torch.empty(0))
