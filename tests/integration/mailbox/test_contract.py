"""What every mailbox guarantees, whatever holds its objects."""

from __future__ import annotations

import os
import pickle
import threading
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradientmail.mailbox import InvalidKey, Mailbox, MailboxUnsuitable, Request, Store
from gradientmail.mailbox.keys import problem
from tests.integration.mailbox.conftest import NewBox

segments = st.text(alphabet="0Aaz-. +%!é\uff5e\U0001f600", min_size=1, max_size=4)
keys = st.lists(segments, min_size=1, max_size=3).map("/".join).filter(lambda key: problem(key) is None)
bounds = st.one_of(st.just(""), keys, st.text(alphabet="0Aaz-./é\U0001f600", max_size=5))
few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def filled(box: Store, keys: list[str]) -> Store:
    for key in keys:
        assert box.put_if_absent(key, key.encode())
    return box


def observed(box: Store) -> list[Request]:
    requests: list[Request] = []
    box.observe = requests.append
    return requests


def test_is_a_mailbox(box: Store) -> None:
    assert isinstance(box, Mailbox)


def test_an_object_is_created_once_and_keeps_its_bytes(box: Store) -> None:
    assert box.put_if_absent("units/000000-0.json", b"node-0") is True
    assert box.put_if_absent("units/000000-0.json", b"node-1") is False
    assert box.get("units/000000-0.json") == b"node-0"


@pytest.mark.parametrize("data", [b"", b"\0\r\n\xff", os.urandom(1 << 20)], ids=["empty", "binary", "1 MiB"])
def test_any_bytes_come_back_as_they_were(box: Store, data: bytes) -> None:
    box.put_if_absent("model/final.safetensors", data)
    assert box.get("model/final.safetensors") == data


def test_later_changes_to_a_buffer_do_not_reach_the_object(box: Store) -> None:
    buffer = bytearray(b"before")
    box.put_if_absent("key", cast("bytes", buffer))
    buffer[:] = b"after!"
    assert box.get("key") == b"before"


def test_a_key_that_does_not_exist_has_no_bytes(box: Store) -> None:
    assert box.get("units/none") is None
    assert box.get("units/none/below") is None


def test_an_empty_mailbox_lists_nothing(box: Store) -> None:
    assert list(box.list()) == []
    assert list(box.list("units/", after="units/5")) == []


def test_keys_are_listed_in_byte_order(box: Store) -> None:
    filled(box, ["b", "a0", "a/b", "a.b", "a-b", "a", "B", "10", "9", "é", "\U0001f600", "\uff5e"])
    assert list(box.list()) == ["10", "9", "B", "a", "a-b", "a.b", "a/b", "a0", "b", "é", "\uff5e", "\U0001f600"]


def test_a_listing_keeps_to_prefix_and_start(box: Store) -> None:
    filled(box, ["alive/n/1", "units/1", "units/2", "units/3", "unitsx", "zeta"])
    assert list(box.list("units/")) == ["units/1", "units/2", "units/3"]
    assert list(box.list("units/", after="units/1")) == ["units/2", "units/3"]
    assert list(box.list("units/", after="units/10")) == ["units/2", "units/3"]
    assert list(box.list("units/", after="alive")) == ["units/1", "units/2", "units/3"]
    assert list(box.list("units/", after="v")) == []
    assert list(box.list("units/2")) == ["units/2"]
    assert list(box.list("", after="units/3")) == ["unitsx", "zeta"]


@few
@given(data=st.data())
def test_listings_agree_with_a_sorted_set(new_box: NewBox, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(keys, max_size=8, unique=True))
    box = filled(new_box(), chosen)
    box.page_keys = data.draw(st.integers(1, 5))
    prefix, after = data.draw(bounds), data.draw(bounds)
    expected = [key for key in chosen if key.startswith(prefix) and key.encode() > after.encode()]
    assert list(box.list(prefix, after=after)) == sorted(expected, key=str.encode)
    assert [box.get(key) for key in chosen] == [key.encode() for key in chosen]


def test_a_key_may_be_the_folder_of_another(box: Store) -> None:
    filled(box, ["a", "a/b", "a/b/c", "a-/b", "x.y", "x.y/z"])
    assert list(box.list()) == ["a", "a-/b", "a/b", "a/b/c", "x.y", "x.y/z"]
    box.delete(["a/b", "x.y/z"])
    assert list(box.list()) == ["a", "a-/b", "a/b/c", "x.y"]
    assert box.get("a/b/c") == b"a/b/c"
    assert box.get("a/b") is None


def test_deleted_keys_are_gone_and_may_be_created_anew(box: Store) -> None:
    filled(box, ["a", "b", "c/d"])
    box.delete(["a", "c/d", "never/was"])
    box.delete([])
    assert list(box.list()) == ["b"]
    assert box.get("a") is None
    assert box.put_if_absent("a", b"anew") is True
    assert box.get("a") == b"anew"


def test_a_single_text_is_not_taken_for_the_keys_of_its_letters(box: Store) -> None:
    filled(box, ["a", "b"])
    with pytest.raises(TypeError, match=r"write delete\(\['ab'\]\)"):
        box.delete("ab")
    assert list(box.list()) == ["a", "b"]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "../a", "a\n", "\ud800", "x" * 901, ".tmp-a", "a~", "a."])
def test_no_verb_takes_a_key_that_some_store_could_not_hold(box: Store, key: str) -> None:
    requests = observed(box)
    for call in (lambda: box.put_if_absent(key, b""), lambda: box.get(key), lambda: box.delete(["fine", key])):
        with pytest.raises(InvalidKey, match="cannot be used"):
            call()
    assert requests == []


@pytest.mark.parametrize("prefix", ["..", "../", "a//", "/", "~", "x" * 300, "a/../"])
def test_a_listing_of_a_prefix_that_no_key_has_is_empty(box: Store, prefix: str) -> None:
    filled(box, ["a/b"])
    assert list(box.list(prefix)) == []


def test_a_listing_refuses_text_without_bytes(box: Store) -> None:
    with pytest.raises(InvalidKey, match="not valid Unicode"):
        list(box.list("\ud800"))
    with pytest.raises(InvalidKey, match="not valid Unicode"):
        list(box.list(after="\ud800"))


def test_requests_are_counted_exactly(box: Store) -> None:
    requests = observed(box)
    box.put_if_absent("a", b"1")
    box.put_if_absent("a", b"2")
    box.get("a")
    box.get("b")
    list(box.list())
    box.delete(["a", "b"])
    assert [(request.operation, request.outcome, request.keys) for request in requests] == [
        ("put_if_absent", "ok", 1),
        ("put_if_absent", "exists", 1),
        ("get", "ok", 1),
        ("get", "missing", 1),
        ("list", "ok", 1),
        ("delete", "ok", 2),
    ]
    assert all(request.seconds > 0 for request in requests)


@pytest.mark.parametrize(("count", "pages"), [(0, [0]), (9, [9]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
def test_a_listing_takes_one_request_for_each_page(box: Store, count: int, pages: list[int]) -> None:
    box.page_keys = 10
    names = [f"units/{number:03d}" for number in range(count)]
    filled(box, names)
    requests = observed(box)
    assert list(box.list("units/")) == names
    assert [request.keys for request in requests] == pages


def test_a_store_that_starts_its_listing_anew_is_not_followed_for_ever(box: Store) -> None:
    filled(box, ["a", "b", "c"])
    box.page_keys = 1
    page = box._page
    box._page = lambda prefix, after: page(prefix, "")  # type: ignore[method-assign]
    with pytest.raises(MailboxUnsuitable, match="lists from the start although asked for what follows 'a'"):
        list(box.list())


def test_pages_that_nobody_reads_are_not_requested(box: Store) -> None:
    box.page_keys = 2
    filled(box, ["a", "b", "c", "d", "e"])
    requests = observed(box)
    listing = box.list()
    assert requests == []
    assert [next(listing), next(listing)] == ["a", "b"]
    assert len(requests) == 1
    assert next(listing) == "c"
    assert len(requests) == 2


def test_a_deletion_takes_one_request_for_each_page(box: Store) -> None:
    box.page_keys = 2
    filled(box, ["a", "b", "c", "d", "e"])
    requests = observed(box)
    box.delete(["a", "b", "c", "d", "e"])
    assert [request.keys for request in requests] == [2, 2, 1]
    assert list(box.list()) == []


def test_one_of_many_racing_threads_creates(box: Store) -> None:
    names, racers = [f"units/{number}" for number in range(12)], 6
    meeting, answers = threading.Barrier(racers), [[False] * racers for _ in names]

    def write(racer: int) -> None:
        for number, name in enumerate(names):
            meeting.wait(30)
            answers[number][racer] = box.put_if_absent(name, b"%d" % racer)

    threads = [threading.Thread(target=write, args=(racer,)) for racer in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.count(True) for answer in answers] == [1] * len(names)
    assert [box.get(name) for name in names] == [b"%d" % answer.index(True) for answer in answers]


def test_a_copy_reaches_the_same_objects_or_is_refused(box: Store) -> None:
    box.observe = lambda _: None
    if not box.spans_processes:
        with pytest.raises(TypeError, match="lives in one process"):
            pickle.dumps(box)
        return
    copy: Store = pickle.loads(pickle.dumps(box))
    filled(box, ["a"])
    assert copy.get("a") == b"a"
    assert copy.observe is None
