"""The state that the live page shows, from the nodes' lines and their receipts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace

import pytest

from gradientmail.layout import receipt_key
from gradientmail.local.history import History
from gradientmail.local.live import Counts, Live, Seldom, Subject, counts_by_learner, running_state
from gradientmail.local.watching import NodeView, RunView
from gradientmail.mailbox import Mailbox, MailboxUnavailable
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.progress import NodeProgress, Receipt
from gradientmail.report.page import View
from gradientmail.report.status import run_status
from tests.unit.report.simulated import EPOCH, manifest, state
from tests.waiting import LIMIT_SECONDS, until

RUN = manifest(["a", "b"], steps=60, unit_steps=20, lanes=2)
SUBJECT = Subject(RUN, RUN.spec.data.grid(), joined=False)
FIRST, SECOND, THIRD = sorted(SUBJECT.units)[:3]


def word(node: str, **fields: object) -> NodeProgress:
    return NodeProgress(f"{node}-x", node, EPOCH, "training", **fields)  # type: ignore[arg-type]


VIEW = RunView(
    len(SUBJECT.units),
    120,
    {
        "a-0": NodeView("a-0", "a-0-x", word("a-0", claimed=2, consumed=1, batches=20)),
        "b-0": NodeView("b-0", "b-0-x", word("b-0", claimed=1)),
    },
)


def history() -> History:
    """Two units claimed by a-0, the first of them consumed, and one claimed by b-0."""
    told = History()
    for node, event, unit in [
        ("a-0", "unit-claimed", FIRST),
        ("b-0", "unit-claimed", SECOND),
        ("a-0", "unit-consumed", FIRST),
        ("a-0", "unit-claimed", THIRD),
    ]:
        told.note(node, json.dumps({"event": event, "unit": unit}))
    return told


def receipt(learner: str) -> Receipt:
    return Receipt(learner, 20, EPOCH, EPOCH + 1, EPOCH + 5)


def test_lines_make_the_state_of_a_running_run() -> None:
    found = running_state(SUBJECT, VIEW, history().told(), {FIRST: receipt("a-0-x")}, EPOCH + 6)
    status = run_status(found)
    assert (status.standing, status.total, status.claimed, status.consumed) == ("running", 6, 3, 1)
    assert (status.in_progress, status.lost, status.unclaimed) == (2, 0, 3)
    assert found.owners == {SECOND: "b-0-x", THIRD: "a-0-x"}


def test_what_a_killed_node_had_claimed_is_lost_at_once() -> None:
    found = running_state(SUBJECT, VIEW.ended("b-0", "killed"), history().told(), {}, EPOCH + 6)
    assert found.lost() == {SECOND: "b-0-x"}
    assert [node.phase for node in run_status(found).nodes] == ["training", "failed"]


def test_a_node_has_consumed_what_it_has_receipts_for_even_if_its_last_word_is_older() -> None:
    view = replace(VIEW, nodes={**VIEW.nodes, "a-0": replace(VIEW.nodes["a-0"], progress=word("a-0", claimed=2))})
    live = Live(SUBJECT, MemoryStore(), history(), view.ended("a-0", "killed"))
    assert {node: last.consumed for node, last in live.last_words().items()} == {"a-0": 1}


def test_nodes_that_run_have_had_no_last_word() -> None:
    assert Live(SUBJECT, MemoryStore(), history(), VIEW).last_words() == {}


class Held(MemoryStore):
    """A store that answers nobody before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def _read(self, key: str) -> bytes | None:
        assert self.open.wait(LIMIT_SECONDS)
        return super()._read(key)


def test_receipts_are_read_once_and_only_once_somebody_looks() -> None:
    requests: Counter[str] = Counter()
    box = Held()
    box.put_if_absent(receipt_key(FIRST), receipt("a-0-x").to_json().encode())
    box.observe = lambda request: requests.update([request.operation])
    live = Live(SUBJECT, box, history(), VIEW)
    live._page = live._made  # type: ignore[assignment]  # the page's own rate is another test's
    with live.reading():
        assert requests == {}
        first = live.page()
        assert list(first.remarks) == ["The timeline lacks the latest 1 of 1 units."]
        box.open.set()
        until(lambda: bool(live.page().figures.boxes))
        (box_shown,) = live.page().figures.boxes
        assert (box_shown.node, box_shown.identifier, box_shown.finish) == ("a-0", FIRST, 4.0)
        assert list(live.page().remarks) == []
    assert requests == {"get": 1}


class Down(MemoryStore):
    """A store that answers nobody."""

    def _read(self, key: str) -> bytes | None:
        raise MailboxUnavailable("no answer from the store")


def test_a_store_that_does_not_answer_is_said_on_the_page() -> None:
    live = Live(SUBJECT, Down(), history(), VIEW)
    live._page = live._made  # type: ignore[assignment]
    with live.reading():
        until(lambda: len(live.page().remarks) == 2)
        assert live.page().remarks[1] == "The mailbox cannot be read at the moment: no answer from the store"


def test_once_the_run_has_ended_the_mailbox_has_the_last_word() -> None:
    ended = state({"a": 1.0, "b": 0.5}, steps=60, unit_steps=20, lanes=2, dies=("b", 70.0))
    box: Mailbox = MemoryStore()
    views = {name: replace(node, learner=f"{name}-abc123", ended="finished") for name, node in VIEW.nodes.items()}
    live = Live(SUBJECT, box, history(), replace(VIEW, nodes=views))
    before = live.page()
    live.settle(ended)
    assert (before.status.consumed, ended.total) == (1, 6)
    assert live.page().status == run_status(ended)
    lasts = live.last_words()
    counts = counts_by_learner(ended)
    assert {name: Counts(last.claimed, last.consumed) for name, last in lasts.items()} == {
        "a-0": counts["a-0-abc123"],
        "b-0": counts["b-0-abc123"],
    }
    assert counts["b-0-abc123"] == Counts(2, 1)


@pytest.mark.parametrize(("cost", "wait"), [(0.0, 1.0), (0.01, 1.0), (0.5, 10.0)])
def test_a_page_is_made_so_seldom_that_making_it_takes_a_twentieth_of_a_core(cost: float, wait: float) -> None:
    now = [0.0]
    made: list[float] = []

    def make() -> int:
        now[0] += cost
        made.append(now[0])
        return len(made)

    seldom = Seldom(make, clock=lambda: now[0])
    assert seldom() == 1
    now[0] = cost + 0.99 * wait
    assert seldom() == 1
    now[0] = cost + wait
    assert seldom() == 2


def test_a_joined_run_says_that_it_shows_this_machine_alone() -> None:
    view: View = Live(replace(SUBJECT, joined=True), MemoryStore(), History(), VIEW).page()
    assert view.remarks == ["Units and nodes shown are those of this machine; `gradientmail status` counts all."]
