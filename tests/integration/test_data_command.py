"""`gradientmail data` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradientmail.training.data.corpus import open_corpus


def data(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gradientmail", "data", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for number in range(40):
        (tmp_path / "text").mkdir(exist_ok=True)
        (tmp_path / "text" / f"{number}.py").write_bytes(b"x" * 999)
    (tmp_path / "text" / "other.md").write_bytes(b"y")
    return tmp_path


def test_text_becomes_token_files(text: Path) -> None:
    done = data(text, "text", "corpus", "--glob", "*.py", "--batch", "10", "--context", "16")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "40 documents, vocabulary of 257 tokens",
        "corpus/train: 38,000 tokens",
        "corpus/held-out: 2,000 tokens",
        "That serves 237 steps of 10 sequences of 16 tokens (spec.data.steps).",
    ]
    assert open_corpus(str(text / "corpus/train"), vocabulary=257).tokens == 38_000
    assert open_corpus(str(text / "corpus/held-out"), vocabulary=257).tokens == 2_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("text", "text"), "'text' exists already: choose another folder, or --force to replace it"),
        (("none", "out"), "'none' is neither a folder nor a file: give folders or files of text"),
        (("text", "out", "--glob", "*.c"), "no text was found that matches '*.c': check the folders and --glob"),
    ],
)
def test_mistake_is_one_sentence(text: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = data(text, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradientmail: {sentence}\n")


def test_several_sources(text: Path) -> None:
    done = data(text, "text/0.py", "text/1.py", "two", "--held-out", "0")
    assert done.stdout.splitlines()[1] == "two/train: 2,000 tokens"
