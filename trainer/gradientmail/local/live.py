"""A local run as its page shows it while it is going: the nodes' lines, and their receipts for the timeline.

A receipt is read once, one request each, and only while somebody looks: a run that nobody watches
costs its store nothing more. Pages are made at most once a second, and in large runs so seldom that
making them takes a twentieth of one core.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from gradientmail.bulk import READERS
from gradientmail.layout import receipt_key
from gradientmail.local.beside import beside
from gradientmail.local.history import History, Told
from gradientmail.local.watching import NodeView, RunView
from gradientmail.mailbox import Mailbox, MailboxError
from gradientmail.progress import NodeProgress, Receipt
from gradientmail.report.figures import figures
from gradientmail.report.page import View
from gradientmail.report.status import run_status
from gradientmail.run import GradientRun
from gradientmail.runstate import Learner, RunState
from gradientmail.units import Unit

SOONEST_SECONDS = 1.0
SHARE_OF_A_CORE = 0.05
LOOKED_SECONDS = 30.0
"""Somebody who has asked for the page within this time still looks at it."""
BEHIND_SHARE = 0.05
"""Of the receipts: so many unread ones are worth a word; the very latest always are on their way."""
AT_ONCE = 512
"""Receipts read before the page sees them."""
RETRY_SECONDS = 2.0

Made = TypeVar("Made")


@dataclass(frozen=True)
class Subject:
    """What is shown."""

    manifest: GradientRun
    units: Mapping[str, Unit]
    joined: bool
    """Whether nodes elsewhere take part."""


@dataclass(frozen=True)
class Counts:
    """Units of one learner."""

    claimed: int = 0
    consumed: int = 0


class Live:
    """The state of a run on this machine. `show` and `settle` are for the main thread, the rest for any."""

    def __init__(self, subject: Subject, box: Mailbox, history: History, view: RunView) -> None:
        self._subject, self._box, self._history, self._view = subject, box, history, view
        self._receipts: dict[str, Receipt] = {}
        self._trouble = ""
        self._settled: RunState | None = None
        self._counts: Mapping[str, Counts] = {}
        self._looked = -LOOKED_SECONDS
        self._page = Seldom(self._made)

    def show(self, view: RunView) -> None:
        """Take the latest view of the nodes."""
        self._view = view

    def settle(self, state: RunState) -> None:
        """Take what the mailbox says of the run that has ended: from now on that is what is shown."""
        self._settled, self._counts = state, counts_by_learner(state)
        self._page = Seldom(self._made)

    def page(self) -> View:
        """Return what the page shows; makes it anew only if the last one is old enough. Asks no store."""
        self._looked = time.monotonic()
        return self._page()

    def last_words(self) -> dict[str, NodeProgress]:
        """Return the last progress of each node that has ended, its counts of units exact."""
        told = self._history.told()
        ended = [node for node in self._view.nodes.values() if node.ended]
        return {node.node: self._word(node, told) for node in ended}

    def reading(self) -> AbstractContextManager[None]:
        """Read receipts on a thread of its own within the block."""
        return beside("live receipts", self._read_receipts)

    def _made(self) -> View:
        view, told = self._view, self._history.told()
        lately = {name: node.waiting for name, node in view.nodes.items() if node.waiting is not None}
        if self._settled:
            return replace(View.of(self._settled), loss=told.loss)
        state = running_state(self._subject, view, told, dict(self._receipts), time.time())
        return View(
            figures(state),
            run_status(replace(state, receipts=None)),  # receipts may lag behind the nodes' own counts
            told.loss,
            lately,
            view.seconds_left,
            list(self._remarks(told)),
        )

    def _remarks(self, told: Told) -> Iterator[str]:
        if self._subject.joined:
            yield "Units and nodes shown are those of this machine; `gradientmail status` counts all."
        missing = len(told.consumed) - len(self._receipts)
        if missing > BEHIND_SHARE * len(told.consumed):
            yield f"The timeline lacks the latest {missing:,} of {len(told.consumed):,} units."
        if self._trouble:
            yield self._trouble

    def _word(self, node: NodeView, told: Told) -> NodeProgress:
        word = node.progress or NodeProgress(node.learner, node.node)
        if self._settled:
            exact = self._counts.get(node.learner, Counts())
            return replace(word, claimed=exact.claimed, consumed=exact.consumed)
        return replace(word, consumed=max(word.consumed, told.receipts.get(node.node, 0)))

    def _read_receipts(self, closing: threading.Event) -> None:
        with ThreadPoolExecutor(READERS, thread_name_prefix="live receipts") as pool:
            while not closing.is_set():
                due = self._due()
                try:
                    self._receipts.update(receipt for receipt in pool.map(self._receipt, due) if receipt)
                    self._trouble = ""
                except MailboxError as error:
                    self._trouble = f"The mailbox cannot be read at the moment: {error}"
                    closing.wait(RETRY_SECONDS)
                if len(due) < AT_ONCE:
                    closing.wait(SOONEST_SECONDS / 2)

    def _due(self) -> list[str]:
        if time.monotonic() - self._looked >= LOOKED_SECONDS or self._settled:
            return []
        missing = (unit for unit in self._history.told().consumed if unit not in self._receipts)
        return [unit for unit, _ in zip(missing, range(AT_ONCE), strict=False)]

    def _receipt(self, unit: str) -> tuple[str, Receipt] | None:
        data = self._box.get(receipt_key(unit))
        try:
            return (unit, Receipt.from_json(data)) if data is not None else None
        except (ValueError, TypeError):
            return None


class Seldom(Generic[Made]):
    """Makes a value at most once a second, and so that making takes a small share of the time. For any thread."""

    def __init__(self, make: Callable[[], Made], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._clock = make, clock
        self._lock = threading.Lock()
        self._last: tuple[Made, float] | None = None

    def __call__(self) -> Made:
        """Return the value, made anew if it is due; blocks while another thread makes it."""
        with self._lock:
            started = self._clock()
            if self._last is None or started >= self._last[1]:
                made = self._make()
                finished = self._clock()
                self._last = made, finished + max(SOONEST_SECONDS, (finished - started) / SHARE_OF_A_CORE)
            return self._last[0]


def running_state(subject: Subject, view: RunView, told: Told, receipts: Mapping[str, Receipt], now: float) -> RunState:
    """Return the state of a run as its nodes here tell it, at `now` (seconds since the epoch). Pure."""
    learners = {node.learner: _learner(node, told) for node in view.nodes.values()}
    names = {node: each.learner for node, each in view.nodes.items()}
    consumed = frozenset(told.consumed)
    return RunState(
        read_at=now,
        manifest=subject.manifest,
        units=subject.units,
        claimed=consumed.union(told.claimed),
        consumed=consumed,
        receipts=receipts,
        owners={unit: names[node] for unit, node in told.claimed.items() if unit not in consumed},
        learners=learners,
    )


def _learner(node: NodeView, told: Told) -> Learner:
    word = node.progress
    if word:
        word = replace(word, consumed=max(word.consumed, told.receipts.get(node.node, 0)))
    if word and node.ended:
        phase = {"finished": "finished", "stopped": "stopped"}.get(node.ended, "failed")
        word = replace(word, phase=phase)  # type: ignore[arg-type]
    return Learner(node.learner, node.node, word, left=bool(node.ended))


def counts_by_learner(state: RunState) -> dict[str, Counts]:
    """Return how many units each learner has claimed and consumed by what the mailbox says. Pure."""
    consumed = Counter(receipt.learner for receipt in (state.receipts or {}).values())
    open_units = Counter(state.owners.values())
    return {name: Counts(consumed[name] + open_units[name], consumed[name]) for name in consumed | open_units}
