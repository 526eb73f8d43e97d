"""Reading a run from its mailbox, against the memory store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from gradientmail.layout import beat_key, left_key, receipt_key
from gradientmail.mailbox import Mailbox, open_mailbox
from gradientmail.progress import ExchangeProgress, NodeProgress, Receipt
from gradientmail.runstate import Learner, NotARun, RunState, read_run
from tests.unit.report.simulated import EPOCH, manifest

A, B = "a-0-aaaaaa", "b-0-bbbbbb"


@pytest.fixture
def box(request: pytest.FixtureRequest) -> Mailbox:
    """An empty mailbox."""
    return open_mailbox(f"memory:{request.node.nodeid}")


def word(learner: str, **changes: object) -> bytes:
    return NodeProgress(learner, learner[:3], time=EPOCH, **changes).to_json().encode()  # type: ignore[arg-type]


def receipt(learner: str) -> bytes:
    return Receipt(learner, 20, EPOCH, EPOCH + 1, EPOCH + 5).to_json().encode()


def put(box: Mailbox, objects: Iterable[tuple[str, bytes]]) -> None:
    for key, data in objects:
        assert box.put_if_absent(key, data)


def started(box: Mailbox) -> None:
    run = manifest(["a", "b"], steps=60, unit_steps=20, lanes=2)
    put(box, [("run.json", run.model_dump_json(by_alias=True).encode())])


def read(box: Mailbox, most_receipts: int | None = None) -> RunState:
    return read_run(box, clock=lambda: EPOCH + 10.0, most_receipts=most_receipts)


def test_claims_receipts_and_words_make_the_state(box: Mailbox) -> None:
    started(box)
    put(
        box,
        [
            (f"units/{name}", learner.encode())
            for name, learner in [("000000-0.json", A), ("000000-1.json", B), ("000001-0.json", A)]
        ],
    )
    put(
        box, [(receipt_key("000000-0.json"), receipt(A)), (beat_key(A, 0), word(A)), (beat_key(A, 12), word(A, step=7))]
    )
    put(box, [(beat_key(B, 3), word(B)), (left_key(B), word(B, phase="stopped"))])
    state = read(box)
    assert (state.total, len(state.claimed), state.consumed) == (6, 3, frozenset({"000000-0.json"}))
    assert state.owners == {"000000-1.json": B, "000001-0.json": A}
    assert state.receipts == {"000000-0.json": Receipt(A, 20, EPOCH, EPOCH + 1, EPOCH + 5)}
    assert state.learners[A] == Learner(A, "a-0", NodeProgress(A, "a-0", time=EPOCH, step=7), 12)
    assert state.learners[B].left
    assert state.learners[B].progress == NodeProgress(B, "b-0", time=EPOCH, phase="stopped")
    assert state.lost() == {"000000-1.json": B}
    assert state.foreign.count == 0


@pytest.mark.parametrize(
    ("exchange", "key", "found"),
    [
        (ExchangeProgress(versions=(3,)), "model/final.safetensors", True),
        (ExchangeProgress(versions=(3,)), "model/final.safetensors.old", False),
        (None, "model/final.safetensors", False),
    ],
)
def test_a_final_model_is_looked_for_where_learners_exchange(
    box: Mailbox, exchange: ExchangeProgress | None, key: str, found: bool
) -> None:
    started(box)
    put(box, [(key, b""), (left_key(A), word(A, exchange=exchange))])
    assert read(box).has_final_model is found


def test_a_silent_learners_units_are_lost_once_the_limit_has_passed(box: Mailbox) -> None:
    started(box)
    put(box, [("units/000000-0.json", A.encode()), (beat_key(A, 1), word(A))])
    state = read(box)
    assert replace(state, read_at=EPOCH + 60.0).lost() == {}
    assert replace(state, read_at=EPOCH + 60.1).lost() == {"000000-0.json": A}
    assert replace(state, read_at=EPOCH + 6.0).lost(silent_after=5.0) == {"000000-0.json": A}


def test_foreign_objects_are_skipped_and_counted(box: Mailbox) -> None:
    started(box)
    junk = ["units/readme.txt", "consumed/000000-0.json", "alive/x", "alive/y/one", "left/z", "alive/w/0000000002"]
    put(box, [(key, b"\xff not a record") for key in junk])
    state = read(box)
    assert state.foreign.count == 6
    assert set(state.foreign.examples) < set(junk)
    assert state.consumed == frozenset()


@pytest.mark.parametrize(
    "text", [b'{"learner": 1, "node": "a-0"}', b'{"learner": "a", "node": "a", "time": "noon"}', b"[]"]
)
def test_a_word_with_the_wrong_types_is_foreign(box: Mailbox, text: bytes) -> None:
    started(box)
    put(box, [(left_key(A), text)])
    state = read(box)
    assert state.foreign.examples == (left_key(A),)
    assert state.learners[A] == Learner(A, "a-0", None, None, True)


def test_the_registration_need_not_hold_a_word(box: Mailbox) -> None:
    started(box)
    put(box, [(beat_key(A, 0), b"")])
    state = read(box)
    assert state.learners[A] == Learner(A, "a-0", None, 0)
    assert state.foreign.count == 0


def test_without_a_manifest_the_total_is_unknown(box: Mailbox) -> None:
    put(box, [("units/any-name", b"node-0")])
    state = read(box)
    assert (state.manifest, state.total, state.complete) == (None, None, False)
    assert state.owners == {"any-name": "node-0"}
    assert state.learners["node-0"].presence(EPOCH) == "unknown"
    assert replace(state, read_at=EPOCH + 1e9).lost() == {}


def test_a_manifest_that_cannot_be_read_is_foreign(box: Mailbox) -> None:
    put(box, [("run.json", b"{}"), ("units/000000-0.json", A.encode())])
    assert read(box).foreign.examples == ("run.json",)


def test_learners_that_only_receipts_tell_of_are_found_and_their_node_is_named(box: Mailbox) -> None:
    started(box)
    put(box, [(receipt_key("000000-0.json"), receipt(A)), (receipt_key("000000-1.json"), receipt("elsewhere"))])
    state = read(box)
    assert {name: learner.node for name, learner in state.learners.items()} == {A: "a-0", "elsewhere": "elsewhere"}
    assert state.claimed == {"000000-0.json", "000000-1.json"}


@pytest.mark.parametrize(("most", "are_read"), [(0, False), (1, False), (2, True)])
def test_receipts_are_left_unread_where_there_are_more_than_asked_for(box: Mailbox, most: int, are_read: bool) -> None:
    started(box)
    put(box, [(receipt_key("000000-0.json"), receipt(A)), (receipt_key("000000-1.json"), receipt(B))])
    state = read(box, most_receipts=most)
    assert (state.receipts is not None) is are_read
    assert len(state.consumed) == 2


@pytest.mark.parametrize("objects", [[], ["other/thing"], ["run.json"]])
def test_what_is_no_run_is_refused(box: Mailbox, objects: list[str]) -> None:
    put(box, [(key, b"?") for key in objects])
    with pytest.raises(NotARun, match=r"holds no run: neither run\.json nor claims"):
        read(box)


class LostBetween:
    """A mailbox whose learner has deleted the listed heartbeat, and written a newer one, before it is read."""

    def __init__(self, box: Mailbox) -> None:
        self._box, self.put_if_absent, self.list, self.delete = box, box.put_if_absent, box.list, box.delete

    def get(self, key: str) -> bytes | None:
        if key == beat_key(A, 4):
            self._box.delete([key])
            self._box.put_if_absent(beat_key(A, 5), word(A, step=9))
        return self._box.get(key)


def test_a_heartbeat_that_is_overtaken_while_it_is_read_is_looked_for_again(box: Mailbox) -> None:
    started(box)
    put(box, [(beat_key(A, 4), word(A, step=8))])
    progress = read(LostBetween(box)).learners[A].progress
    assert progress is not None
    assert progress.step == 9


class FinishesMeanwhile(LostBetween):
    """A mailbox whose learner writes its last receipt and leaves while the run is being read."""

    def __init__(self, box: Mailbox, at: str) -> None:
        super().__init__(box)
        self.list = self._list
        self._at = at

    def _list(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        if prefix == self._at:
            self._box.put_if_absent(receipt_key("000000-0.json"), receipt(A))
            self._box.put_if_absent(left_key(A), word(A, phase="finished"))
        return self._box.list(prefix, after=after)


@pytest.mark.parametrize("at", ["units/", "left/", "alive/", "consumed/"])
def test_a_learner_that_finishes_while_it_is_read_has_lost_nothing(box: Mailbox, at: str) -> None:
    started(box)
    put(box, [("units/000000-0.json", A.encode()), (beat_key(A, 1), word(A))])
    state = read(FinishesMeanwhile(box, at))
    assert state.lost() == {}
    assert state.consumed == {"000000-0.json"}


def test_node_names_follow_the_manifest() -> None:
    assert manifest(["a", "b"], steps=1, unit_steps=1, lanes=1).spec.node_names == ["a-0", "b-0"]
