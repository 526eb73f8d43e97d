"""Conversations held together, and the requests that they make at the same time."""

from __future__ import annotations

import contextlib
import threading

import pytest

from gradientmail.exchange.driver import REQUESTS_AT_ONCE
from gradientmail.exchange.requests import Conversation, Read, Together, reading, together
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.retrying import Patience
from tests.unit.exchange.doubles import BOUND_SECONDS, Driven, Small


class Meeting(MemoryStore):
    """Answers no read before as many as `parties` are under way."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(parties, timeout=BOUND_SECONDS)

    def get(self, key: str) -> bytes | None:
        self.barrier.wait()
        return super().get(key)


def chain(*keys: str) -> Conversation[str]:
    """Read objects one after the other; return what they hold."""
    told = b""
    for key in keys:
        told += (yield from reading(key)) or b""
    return told.decode()


def test_requests_made_together_are_under_way_at_the_same_time_and_answered_in_their_order() -> None:
    box = Meeting(REQUESTS_AT_ONCE)
    keys = [f"key-{number}" for number in range(REQUESTS_AT_ONCE)]
    for key in keys[1:]:
        box.put_if_absent(key, key.encode())
    with contextlib.closing(Driven(box, Small(), Patience(0.0, lambda _: False)).driver) as one:
        found = one.hold(together([reading(key) for key in keys]))
        assert one.requests == REQUESTS_AT_ONCE
    assert found == [None, *(key.encode() for key in keys[1:])]


def test_conversations_of_unequal_length_ask_together_for_as_long_as_they_last() -> None:
    def inner() -> Conversation[str]:
        return "".join((yield from together([chain("e"), chain("f", "g")])))

    both = together([chain("a", "b", "c"), chain(), chain("d"), inner()])
    asked = [both.send(None)]
    with pytest.raises(StopIteration) as end:
        while True:
            newest = asked[-1]
            requests = newest.requests if isinstance(newest, Together) else (newest,)
            answers = tuple(each.key.encode() for each in requests if isinstance(each, Read))
            asked.append(both.send(answers if isinstance(newest, Together) else answers[0]))
    assert asked == [
        Together((Read("a"), Read("d"), Read("e"), Read("f"))),
        Together((Read("b"), Read("g"))),
        Read("c"),
    ]
    assert end.value.value == ["abc", "", "d", "efg"]


def test_no_conversation_asks_nothing() -> None:
    with pytest.raises(StopIteration) as end:
        together([]).send(None)
    assert end.value.value == []
