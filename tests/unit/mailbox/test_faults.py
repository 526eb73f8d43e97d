from __future__ import annotations

import threading

import pytest

from gradientmail.mailbox import MailboxDenied, MailboxUnavailable, Request
from gradientmail.mailbox.faults import Fault, FaultyStore, Kind
from gradientmail.mailbox.memory import MemoryStore


def outcomes(box: FaultyStore, attempts: int) -> list[bool]:
    """Say of each of so many writes whether it was answered."""
    answered = []
    for number in range(attempts):
        try:
            box.put_if_absent(f"units/{number}", b"")
            answered.append(True)
        except MailboxUnavailable:
            answered.append(False)
    return answered


def test_without_faults_nothing_changes() -> None:
    box = FaultyStore(MemoryStore())
    assert box.put_if_absent("a", b"1") is True
    assert box.put_if_absent("a", b"2") is False
    assert box.get("a") == b"1"
    assert list(box.list()) == ["a"]
    box.delete(["a"])
    assert list(box.list()) == []
    assert box.injected == {}


def test_a_lost_answer_hides_a_write_that_landed() -> None:
    box = FaultyStore(MemoryStore(), Fault("lost answer", operations=("put_if_absent",), count=1))
    with pytest.raises(MailboxUnavailable, match="the answer to put_if_absent of 'a' was lost"):
        box.put_if_absent("a", b"1")
    assert box.get("a") == b"1"
    assert box.injected == {"lost answer": 1}


def test_a_write_answered_twice_is_told_exists_about_itself() -> None:
    box = FaultyStore(MemoryStore(), Fault("answered twice", count=1))
    assert box.put_if_absent("a", b"1") is False
    assert box.get("a") == b"1"


@pytest.mark.parametrize("kind", ["conflict", "unavailable", "throttled"])
def test_a_refusal_writes_nothing(kind: Kind) -> None:
    box = FaultyStore(MemoryStore(), Fault(kind, count=1))
    with pytest.raises(MailboxUnavailable, match="injected: "):
        box.put_if_absent("a", b"1")
    assert box.get("a") is None


def test_a_denial_is_not_to_be_tried_again() -> None:
    box = FaultyStore(MemoryStore(), Fault("denied", operations=("list",)))
    with pytest.raises(MailboxDenied):
        list(box.list("units/"))


def test_a_slow_request_is_carried_out_later() -> None:
    slept: list[float] = []
    box = FaultyStore(MemoryStore(), Fault("slow", seconds=2.5, count=1), sleep=slept.append)
    assert box.put_if_absent("a", b"1") is True
    assert box.get("a") == b"1"
    assert slept == [2.5]


@pytest.mark.parametrize(
    ("fault", "answered"),
    [
        (Fault("unavailable"), [False] * 6),
        (Fault("unavailable", count=2), [False, False, True, True, True, True]),
        (Fault("unavailable", skip=2, count=3), [True, True, False, False, False, True]),
        (Fault("unavailable", every=3), [False, True, True, False, True, True]),
        (Fault("unavailable", skip=1, every=2, count=2), [True, False, True, False, True, True]),
        (Fault("unavailable", keys="units/[14]"), [True, False, True, True, False, True]),
        (Fault("unavailable", keys="consumed/*"), [True] * 6),
        (Fault("unavailable", operations=("get", "list", "delete")), [True] * 6),
    ],
)
def test_a_fault_befalls_the_requests_it_names(fault: Fault, answered: list[bool]) -> None:
    assert outcomes(FaultyStore(MemoryStore(), fault), 6) == answered
    assert outcomes(FaultyStore(MemoryStore(), fault), 6) == answered


def test_an_outage_fails_everything_until_it_is_over() -> None:
    inner = MemoryStore()
    box = FaultyStore(inner)
    with box.outage():
        calls = (
            lambda: box.put_if_absent("a", b""),
            lambda: box.get("a"),
            lambda: list(box.list()),
            lambda: box.delete(["a"]),
        )
        for call in calls:
            with pytest.raises(MailboxUnavailable, match="outage"):
                call()
    assert box.injected == {"outage": 4}
    assert box.put_if_absent("a", b"") is True
    box.fail()
    assert outcomes(box, 1) == [False]
    box.heal()
    assert outcomes(box, 1) == [True]


def test_injected_failures_are_observed_as_requests() -> None:
    requests: list[Request] = []
    box = FaultyStore(MemoryStore(), Fault("unavailable", count=1), observe=requests.append)
    with pytest.raises(MailboxUnavailable):
        box.get("a")
    box.get("a")
    assert [(request.operation, request.outcome) for request in requests] == [
        ("get", "unavailable"),
        ("get", "missing"),
    ]


def test_pages_are_asked_of_the_inner_mailbox_one_by_one() -> None:
    inner = MemoryStore()
    inner.page_keys = 2
    for number in range(5):
        inner.put_if_absent(f"{number}", b"")
    pages: list[Request] = []
    box = FaultyStore(inner, Fault("unavailable", operations=("list",), skip=1, count=1))
    inner.observe = pages.append
    listing = box.list()
    assert [next(listing), next(listing)] == ["0", "1"]
    assert len(pages) == 1
    with pytest.raises(MailboxUnavailable):
        next(listing)
    assert list(box.list(after="1")) == ["2", "3", "4"]


def test_threads_share_one_count() -> None:
    box = FaultyStore(MemoryStore(), Fault("unavailable", operations=("get",), skip=100, count=50))

    def read() -> None:
        for _ in range(100):
            try:
                box.get("a")
            except MailboxUnavailable:
                continue

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert box.injected == {"unavailable": 50}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fault("slow", seconds=-1),
        lambda: Fault("slow", every=0),
        lambda: Fault("slow", skip=-1),
        lambda: Fault("slow", count=-1),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="must be"):
        make()
