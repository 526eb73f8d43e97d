from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.mailbox import InvalidKey, check_key
from gradientmail.mailbox.file import FileStore
from gradientmail.mailbox.keys import problem


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("", "it is empty"),
        ("/a", "it starts or ends with '/' or has '//'"),
        ("a/", "it starts or ends with '/' or has '//'"),
        ("a//b", "it starts or ends with '/' or has '//'"),
        ("..", "a segment ends with '.', which the file store keeps for itself"),
        ("a/./b", "a segment ends with '.', which the file store keeps for itself"),
        ("a~", "a segment ends with '~', which the file store keeps for itself"),
        (".tmp-1", "a segment starts with '.tmp-', which the file store keeps for itself"),
        ("a\x00", "it has a control character"),
        ("a\x7f", "it has a control character"),
        ("\ud800", "it is not valid Unicode"),
        ("é" * 451, "it has 902 bytes, at most 900 are allowed"),
        ("é" * 101, "a segment has over 200 bytes"),
    ],
)
def test_a_key_that_some_store_could_not_hold_is_refused_with_the_reason(key: str, what: str) -> None:
    with pytest.raises(InvalidKey) as raised:
        check_key(key)
    assert str(raised.value) == f"mailbox key {key!r} cannot be used: {what}"


@pytest.mark.parametrize("key", ["a", "units/000000-0.json", "a b/ü+%&?#", "x" * 200, ".hidden", "~a", "a.b.c"])
def test_other_keys_are_taken(key: str) -> None:
    assert check_key(key) == key


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4).map("/".join), st.text(max_size=30))
def test_valid_keys_have_paths_of_their_own_inside_the_root(key: str, other: str) -> None:
    store = FileStore("/root-folder")
    if problem(key) is None:
        assert store.path(key).is_relative_to(store.root)
        assert len(store.path(key).name.encode()) <= 255
        if problem(other) is None and other != key:
            assert store.path(other) != store.path(key)
            assert store.path(other) not in store.path(key).parents
