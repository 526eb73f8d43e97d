"""Drives the protocol's conversations over a mailbox, with patience for a store that does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from gradientmail.exchange.replica import Replica
from gradientmail.exchange.requests import (
    Answer,
    Conversation,
    Create,
    Fetch,
    Found,
    ListKeys,
    Merge,
    Publish,
    Read,
    Refused,
    Remove,
    Request,
)
from gradientmail.mailbox import Mailbox
from gradientmail.patterns.retrying import Patience, Stopped

T = TypeVar("T")
Result = TypeVar("Result")


class Driver:
    """Holds conversations for one learner.

    lock: held while the protocol itself runs, never during a request. It keeps the training thread
        from changing the learner's state at the same time.
    told: called with each request and its answer.
    given_up: asked before each request; True raises Stopped.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        replica: Replica,
        patience: Patience,
        lock: contextlib.AbstractContextManager[object],
        told: Callable[[Request, Answer], None],
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.patience = patience
        self.given_up = given_up
        self.requests = 0
        self._mailbox = mailbox
        self._replica = replica
        self._lock = lock
        self._told = told

    def hold(self, conversation: Conversation[T]) -> T:
        """Go through a conversation and return how it ended. Blocks on the store.

        Raises what the protocol raises, Stopped or MailboxUnavailable as the patience does, and
        Diverged if the learner's parameters are not finite.
        """
        answer: Answer = None
        while True:
            with self._lock:
                try:
                    request = conversation.send(answer)
                except StopIteration as end:
                    result: T = end.value
                    return result
            answer = self._answer(request)
            self._told(request, answer)

    def call(self, request: Callable[[], Result]) -> Result:
        """Make one request to the store, again until it answers. Raises Stopped, and what the patience raises."""
        if self.given_up():
            raise Stopped
        self.requests += 1
        return self.patience.call(request)

    def _answer(self, request: Request) -> Answer:
        match request:
            case ListKeys(prefix, after):
                return self.call(lambda: list(self._mailbox.list(prefix, after=after)))
            case Read(key):
                return self.call(lambda: self._mailbox.get(key))
            case Create(key, data):
                self.call(lambda: self._mailbox.put_if_absent(key, data))
            case Remove(keys):
                self.call(lambda: self._mailbox.delete(keys))
            case Found() | Fetch() | Publish() | Merge():
                return self._replica.serve(request)
            case Refused():
                pass
        return None
