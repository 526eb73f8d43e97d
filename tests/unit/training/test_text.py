"""From text to token files."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from gradientmail.cli import explained
from gradientmail.exits import Exit, StoreFailed, UserError
from gradientmail.mailbox import MailboxUnavailable
from gradientmail.training.data.corpus import open_corpus
from gradientmail.training.data.errors import told
from gradientmail.training.data.text import Made, ShardWriter, Wish, encoded, make_corpus


def texts(folder: Path, **contents: bytes) -> Path:
    for name, data in contents.items():
        path = folder / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def tokens(folder: Path) -> list[int]:
    corpus = open_corpus(str(folder), vocabulary=257)
    return [int(token) for token in corpus.read(0, corpus.tokens)]


def test_bytes_become_tokens() -> None:
    assert np.frombuffer(encoded(b"a\xff\0"), "<u2").tolist() == [97, 255, 0]


def test_each_document_follows_a_separator(tmp_path: Path) -> None:
    source = texts(tmp_path / "in", a=b"one", sub_b=b"two")
    made = make_corpus([source], "*", Wish(tmp_path / "out", held_out=0.0))
    assert made == Made(documents=2, skipped=0, tokens=8, held_out_tokens=0)
    # The order is that of the names' SHA-256: "a" is ca97…, "sub/b" is 5d9b….
    assert tokens(tmp_path / "out/train") == [256, *b"two", 256, *b"one"]


def test_same_folder_gives_the_same_files_elsewhere(tmp_path: Path) -> None:
    contents = {f"d{number}_f{number}": bytes([65 + number]) * (100 * number + 1) for number in range(20)}
    for name in ("first", "second"):
        make_corpus([texts(tmp_path / name, **contents)], "*", Wish(tmp_path / f"out-{name}", shard_tokens=1000))
    files = sorted(path.relative_to(tmp_path / "out-first") for path in (tmp_path / "out-first").rglob("*.bin"))
    assert [str(path) for path in files][-1] == "train/000018.bin"
    for path in files:
        assert (tmp_path / "out-first" / path).read_bytes() == (tmp_path / "out-second" / path).read_bytes()


@pytest.mark.parametrize(("sizes", "low", "high"), [([100_000], 0.045, 0.051), ([1000] * 100, 0.04, 0.051)])
def test_the_share_is_held_out(tmp_path: Path, sizes: list[int], low: float, high: float) -> None:
    source = texts(tmp_path / "in", **{f"f{number}": b"x" * size for number, size in enumerate(sizes)})
    made = make_corpus([source], "*", Wish(tmp_path / "out", held_out=0.05))
    assert low <= made.held_out_tokens / (made.tokens + made.held_out_tokens) <= high
    assert len(tokens(tmp_path / "out/held-out")) == made.held_out_tokens


def test_binaries_and_empty_files_are_left_out_and_counted(tmp_path: Path) -> None:
    source = texts(tmp_path / "in", a=b"text", b=b"\x7fELF\0\0", c=b"")
    assert make_corpus([source], "*", Wish(tmp_path / "out", held_out=0.0)) == Made(1, 2, 5, 0)


def test_pattern_chooses(tmp_path: Path) -> None:
    source = texts(tmp_path / "in", **{"a.py": b"python", "b.md": b"words"})
    assert make_corpus([source], "*.py", Wish(tmp_path / "out", held_out=0.0)).tokens == 7
    record = json.loads((tmp_path / "out/corpus.json").read_text())
    assert record == {
        "documents": 1,
        "skipped": 0,
        "tokens": 7,
        "held_out_tokens": 0,
        "vocabulary": 257,
        "separator": 256,
    }


def test_shards_have_at_most_so_many_tokens(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "s", shard_tokens=4) as writer:
        writer.write(encoded(b"abc"))
        writer.write(encoded(b"defghij"))
    sizes = [(path.stat().st_size - 1024) // 2 for path in sorted((tmp_path / "s").iterdir())]
    assert sizes == [4, 4, 2]
    assert tokens(tmp_path / "s") == list(b"abcdefghij")


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    source = texts(tmp_path / "in", a=b"one")
    make_corpus([source], "*", Wish(tmp_path / "out", held_out=0.0))
    with pytest.raises(UserError, match=r"out' exists already: choose another folder, or --force to replace it"):
        make_corpus([source], "*", Wish(tmp_path / "out"))
    texts(tmp_path / "in", a=b"more")
    assert make_corpus([source], "*", Wish(tmp_path / "out", held_out=0.0, force=True)).tokens == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_force_does_not_replace_what_this_command_has_not_made(tmp_path: Path) -> None:
    source = texts(tmp_path / "in", a=b"one")
    with pytest.raises(UserError, match=r"in' was not made by this command, so --force does not replace it"):
        make_corpus([source], "*", Wish(source, force=True))
    assert (source / "a").read_bytes() == b"one"


def test_what_was_made_before_is_not_read_again(tmp_path: Path) -> None:
    source = texts(tmp_path, a=b"one")
    wish = Wish(tmp_path / "out", held_out=0.0, force=True)
    assert make_corpus([source], "*", wish).tokens == make_corpus([source], "*", wish).tokens == 4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "neither a folder nor a file: give folders or files of text"),
        (".", "no text was found that matches '*': check the folders and --glob"),
    ],
)
def test_no_text_is_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError) as error:
        make_corpus([tmp_path / "in" / name], "*", Wish(tmp_path / "out"))
    assert sentence in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    source = texts(tmp_path, a=b"one")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/out' could not be written: File exists"):
        make_corpus([source], "*", Wish(tmp_path / "file" / "out"))


@pytest.mark.parametrize(("number", "code"), [(errno.EROFS, 2), (errno.ELOOP, 2), (errno.EDQUOT, 3), (errno.EIO, 3)])
def test_what_the_user_has_to_change_is_told_from_what_may_pass(number: int, code: int) -> None:
    with pytest.raises((UserError, MailboxUnavailable)) as error, told("out", "written"):
        raise OSError(number, "text")
    explanation = explained(error.value)
    assert explanation is not None
    assert explanation[1] == code


def test_full_disk_is_one_sentence() -> None:
    with pytest.raises(StoreFailed) as error, told("out", "written"), Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    assert str(error.value) == "no space is left on the disk of 'out': free some and try again"
    assert error.value.exit is Exit.STORE
