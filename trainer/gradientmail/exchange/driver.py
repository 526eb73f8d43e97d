"""Drives the protocol's conversations over a mailbox, with patience for a store that does not answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
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
    Together,
)
from gradientmail.mailbox import Mailbox, MailboxUnavailable
from gradientmail.patterns.retrying import Patience, Stopped

REQUESTS_AT_ONCE = 8

T = TypeVar("T")
Result = TypeVar("Result")


class Driver:
    """Holds conversations for one learner.

    lock: held while the protocol itself runs, never during a request. It keeps the training thread
        from changing the learner's state at the same time.
    told: called with each request and its answer, by the thread that holds the conversation.
    given_up: asked before each request; True raises Stopped.

    Requests that a conversation makes together are made by threads of the driver's own; `close` ends them.
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
        self._counting = threading.Lock()
        self._exhausted: tuple[Patience, MailboxUnavailable] | None = None
        self._threads = ThreadPoolExecutor(REQUESTS_AT_ONCE, "session-request")

    def hold(self, conversation: Conversation[T]) -> T:
        """Go through a conversation and return how it ended. Blocks on the store.

        Raises what the protocol raises, Stopped or MailboxUnavailable as the patience does, and
        Diverged if the learner's parameters are not finite.
        """
        answer: Answer | tuple[Answer, ...] = None
        while True:
            with self._lock:
                try:
                    request = conversation.send(answer)
                except StopIteration as end:
                    result: T = end.value
                    return result
            answer = self.answer(request)

    def answer(self, request: Request | Together) -> Answer | tuple[Answer, ...]:
        """Make a request, or several at the same time, and return what they answered. Blocks and raises as `hold`.

        Of several, all have ended when this returns, or raises what one of them has raised: Stopped only if
        none has failed otherwise, for nothing would tell of that failure again.
        """
        if not isinstance(request, Together):
            answer = self._served(request)
            self._told(request, answer)
            return answer
        pending = [self._threads.submit(self._served, each) for each in request.requests]
        wait(pending)
        failures = [failure for each in pending if (failure := each.exception())]
        if failures:
            raise next((failure for failure in failures if not isinstance(failure, Stopped)), failures[0])
        answers = tuple(each.result() for each in pending)
        for each, its in zip(request.requests, answers, strict=True):
            self._told(each, its)
        return answers

    def call(self, request: Callable[[], Result]) -> Result:
        """Make one request to the store, again until it answers. Raises Stopped, and what the patience raises.

        Patience that has run out for one request has for all: those that wait their turn do not begin it anew.
        """
        if self.given_up():
            raise Stopped
        patience, exhausted = self.patience, self._exhausted
        if exhausted is not None and exhausted[0] is patience:
            raise exhausted[1]
        with self._counting:
            self.requests += 1
        try:
            return patience.call(request)
        except MailboxUnavailable as error:
            self._exhausted = patience, error
            raise

    def close(self) -> None:
        """End the driver's threads, once what they have begun has ended."""
        self._threads.shutdown()

    def _served(self, request: Request) -> Answer:
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
