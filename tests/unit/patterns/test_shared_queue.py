"""What the page leaves open: bad input, outages, lost answers, early leaving, receipts, counting."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gradientmail.mailbox import InvalidKey, MailboxMisconfigured, MailboxUnavailable
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.shared_queue import LearnerInUse, QueueStatistics, shared_queue
from gradientmail.progress import Receipt
from tests.unit.patterns.doubles import Loader, Recorded
from tests.waiting import until


def names(*identifiers: str) -> dict[str, str]:
    return {identifier: identifier for identifier in identifiers}


def keys(box: MemoryStore, prefix: str) -> list[str]:
    return list(box.list(prefix))


# Bad input.


@pytest.mark.parametrize(
    ("identifier", "what"),
    [
        ("", "it is empty"),
        ("a/b", "has a '/'"),
        ("..", "'..' cannot be used"),
        ("a\nb", "control character"),
        ("x" * 201, "over 200 bytes"),
        ("\ud800", "not valid Unicode"),
        (".tmp-1", "keeps for itself"),
    ],
)
def test_refuses_an_identifier_that_a_key_cannot_hold(identifier: str, what: str) -> None:
    with pytest.raises(InvalidKey, match=what):
        shared_queue(names("a", identifier), mailbox=MemoryStore(), learner_id="n", load=Loader())


@pytest.mark.parametrize("learner_id", ["", "a/b", "..", "a\tb", "x" * 300])
def test_refuses_a_learner_id_that_a_key_cannot_hold(learner_id: str) -> None:
    with pytest.raises(InvalidKey, match="learner ID"):
        shared_queue(names("a"), mailbox=MemoryStore(), learner_id=learner_id, load=Loader())


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("prefetch", 0, "prefetch is 0: expected at least 1"),
        ("prefetch", -3, "prefetch is -3: expected at least 1"),
        ("prefetch", float("nan"), "prefetch is nan: expected at least 1"),
        ("claim_ahead", -1, "claim_ahead is -1: expected at least 0"),
        ("outage_seconds", -1.0, "outage_seconds is -1.0: expected at least 0"),
        ("flush_seconds", -1.0, "flush_seconds is -1.0: expected at least 0"),
    ],
)
def test_refuses_numbers_out_of_range(option: str, value: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        shared_queue(
            names("a"),
            mailbox=MemoryStore(),
            learner_id="n",
            load=Loader(),
            **{option: value},  # type: ignore[arg-type]
        )


def test_what_is_no_mapping_no_mailbox_or_no_text_is_named() -> None:
    options: dict[str, Any] = {"mailbox": MemoryStore(), "learner_id": "n", "load": Loader()}
    listed: Any = ["a", "b"]
    with pytest.raises(TypeError, match=r"units is \"\['a', 'b'\]\" \(list\): expected a mapping of identifiers"):
        shared_queue(listed, **options)
    with pytest.raises(TypeError, match=r"mailbox is 'memory:' \(str\): expected a mailbox, as open_mailbox"):
        shared_queue(names("a"), **options | {"mailbox": "memory:"})
    with pytest.raises(InvalidKey, match="learner ID 3 cannot be used: it is not text but of type int"):
        shared_queue(names("a"), **options | {"learner_id": 3})
    numbered: Any = {1: "a"}
    with pytest.raises(InvalidKey, match="unit identifier 1 cannot be used: it is not text but of type int"):
        shared_queue(numbered, **options)


def test_an_empty_mapping_has_no_batches_and_makes_no_request() -> None:
    box = Recorded(MemoryStore())
    with shared_queue({}, mailbox=box, learner_id="n", load=Loader()) as batches:
        assert list(batches) == []
    assert box.calls == []


def test_a_queue_is_entered_once_and_iterated_inside() -> None:
    queue = shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=Loader())
    with pytest.raises(RuntimeError, match="entered with `with`"):
        next(queue)
    with queue:
        pass
    with pytest.raises(RuntimeError, match="entered once"):
        queue.__enter__()


def test_a_second_process_with_the_same_learner_id_is_refused() -> None:
    box, units = MemoryStore(), names("a", "b")
    with shared_queue(units, mailbox=box, learner_id="n", load=Loader(), prefetch=1) as first:
        assert next(first) == "a.0"
        with shared_queue(units, mailbox=box, learner_id="n", load=Loader()) as second:
            with pytest.raises(LearnerInUse, match="learner ID 'n' has been used"):
                next(second)
            assert second.statistics.claimed == 0
        assert list(first) == ["b.0"]


# Leaving early.


def test_an_exception_in_the_body_leaves_and_passes() -> None:
    box = MemoryStore()
    queue = shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(3), prefetch=1)
    with pytest.raises(ZeroDivisionError), queue as batches:
        for _ in batches:
            raise ZeroDivisionError
    assert not queue.alive
    assert keys(box, "consumed/") == []


def test_stop_makes_the_batch_in_use_the_last() -> None:
    load = Loader(10)
    seen = []
    with shared_queue(names("a", "b"), mailbox=MemoryStore(), learner_id="n", load=load, prefetch=2) as batches:
        for batch in batches:
            seen.append(batch)
            if batch == "a.3":
                batches.stop()
    assert seen == ["a.0", "a.1", "a.2", "a.3"]


def test_a_unit_whose_last_batch_was_in_use_at_the_stop_is_consumed() -> None:
    box = MemoryStore()
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(2), prefetch=4) as batches:
        until(lambda: batches.statistics.buffered == 4)
        for batch in batches:
            if batch == "a.1":
                batches.stop()
    assert keys(box, "consumed/") == ["consumed/a"]
    assert batches.statistics.claimed == 2


def test_a_failure_that_the_loop_never_asked_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def load(unit: str) -> Iterator[str]:
        yield unit
        raise OSError("gone")

    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches:
        next(batches)
        until(lambda: not batches.alive)
    assert "left before its failure was delivered: gone" in caplog.text


def test_a_loader_is_closed_when_the_queue_is_left_in_the_middle_of_its_unit() -> None:
    closed = threading.Event()

    def load(unit: str) -> Iterator[str]:
        try:
            while True:
                yield unit
        finally:
            closed.set()

    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches:
        next(batches)
    assert closed.is_set()


# Loaders that fail.


def raising(at: int, of: int) -> Loader:
    class Raising(Loader):
        def __call__(self, unit: str) -> Iterator[str]:
            for number, batch in enumerate(super().__call__(unit)):
                if number == at:
                    raise OSError(f"failed at {number}")
                yield batch
            if at == of:
                raise OSError(f"failed at {at}")

    return Raising(of)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_loader_that_raises_at_once_in_the_middle_or_at_the_end(at: int) -> None:
    box, seen = MemoryStore(), []
    queue = shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=raising(at, 3))
    with pytest.raises(OSError, match=f"failed at {at}"), queue as batches:
        for batch in batches:
            seen.append(batch)
    assert seen == [f"a.{number}" for number in range(at)]
    assert keys(box, "units/") == ["units/a"]
    assert keys(box, "consumed/") == []


def test_a_loader_that_is_no_generator_and_raises_when_called() -> None:
    def load(unit: str) -> Iterator[str]:
        raise KeyError(unit)

    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches, pytest.raises(KeyError):
        next(batches)


@pytest.mark.parametrize("at", ["a", "b"])
def test_stop_iteration_out_of_a_loader_does_not_pass_for_the_end_of_the_work(at: str) -> None:
    def load(unit: str) -> list[str]:
        return [next(iter([])) if unit == at else unit]

    got: list[str] = []
    with (
        pytest.raises(RuntimeError, match="the loader raised StopIteration") as told,
        shared_queue(names("a", "b"), mailbox=MemoryStore(), learner_id="n", load=load) as batches,
    ):
        got.extend(batches)
    assert isinstance(told.value.__cause__, StopIteration)
    assert got == ([] if at == "a" else ["a"])


def test_a_loader_that_calls_exit_reaches_the_loop() -> None:
    def load(unit: str) -> Iterator[str]:
        raise SystemExit(3)

    with (
        shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches,
        pytest.raises(SystemExit),
    ):
        next(batches)


# A store that fails.


class Outage:
    """Raises MailboxUnavailable for chosen calls; with `landed`, after they have taken effect."""

    def __init__(self, store: MemoryStore, verb: str, key: str, times: int, *, landed: bool = False) -> None:
        self.store, self.verb, self.key, self.times, self.landed = store, verb, key, times, landed

    def __call__(self, verb: str, key: str) -> None:
        if (verb, key) != (self.verb, self.key) or self.times == 0:
            return
        self.times -= 1
        if self.landed:
            self.store.put_if_absent(key, b"n")
        raise MailboxUnavailable("no answer")


@pytest.mark.parametrize(
    ("verb", "key"),
    [("list", "units/>"), ("put_if_absent", "units/a"), ("get", "units/a"), ("put_if_absent", "consumed/a")],
)
def test_an_outage_delays_and_loses_nothing(verb: str, key: str) -> None:
    store = MemoryStore()
    box = Recorded(store, before=Outage(store, verb, key, times=3))
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader()) as batches:
        assert list(batches) == ["a.0", "b.0"]
    assert keys(store, "consumed/") == ["consumed/a", "consumed/b"]


def test_buffered_batches_go_on_during_an_outage() -> None:
    store, down = MemoryStore(), threading.Event()

    def weather(verb: str, key: str) -> None:
        if verb == "list" and key == "units/>units/a" and down.is_set():
            raise MailboxUnavailable("down")

    down.set()
    box = Recorded(store, before=weather)
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(3)) as batches:
        assert [next(batches) for _ in range(3)] == ["a.0", "a.1", "a.2"]
        down.clear()
        assert list(batches) == ["b.0", "b.1", "b.2"]


def test_an_outage_longer_than_the_limit_reaches_the_loop() -> None:
    store = MemoryStore()
    box = Recorded(store, before=Outage(store, "put_if_absent", "units/b", times=10_000))
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(), outage_seconds=0.2) as batches:
        assert next(batches) == "a.0"
        with pytest.raises(MailboxUnavailable, match="has not answered for"):
            next(batches)


def test_leaving_during_an_outage_does_not_wait_for_its_end() -> None:
    store = MemoryStore()
    box = Recorded(store, before=Outage(store, "list", "units/>", times=1_000_000))
    with shared_queue(names("a"), mailbox=box, learner_id="n", load=Loader()) as batches:
        until(lambda: ("list", "units/>") in box.calls)
    assert not batches.alive


def test_a_claim_whose_answer_was_lost_is_trained_by_its_owner_alone() -> None:
    store, load, other = MemoryStore(), Loader(), Loader()
    box = Recorded(store, before=Outage(store, "put_if_absent", "units/a", times=2, landed=True))
    units = names("a", "b")
    with shared_queue(units, mailbox=box, learner_id="n", load=load, prefetch=1) as batches:
        assert next(batches) == "a.0"
        with shared_queue(units, mailbox=store, learner_id="m", load=other) as others:
            theirs = list(others)
        mine = list(batches)
    assert sorted(["a.0", *theirs, *mine]) == ["a.0", "b.0"]
    assert store.get("units/a") == b"n"


def test_a_store_that_does_not_read_back_what_exists_is_named() -> None:
    class Forgetful(MemoryStore):
        def _read(self, key: str) -> bytes | None:
            return None if key.startswith("units/") else super()._read(key)

    with shared_queue(names("a"), mailbox=Forgetful(), learner_id="n", load=Loader()) as batches:
        with pytest.raises(MailboxMisconfigured, match="units/a exists but does not return it"):
            next(batches)


def test_receipts_that_cannot_be_written_are_counted_as_pending_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    box = Recorded(store, before=Outage(store, "put_if_absent", "consumed/a", times=1_000_000))
    with (
        caplog.at_level(logging.WARNING),
        shared_queue(names("a"), mailbox=box, learner_id="n", load=Loader(), flush_seconds=0.1) as batches,
    ):
        assert list(batches) == ["a.0"]
    assert "1 receipts could not be written" in caplog.text
    assert (batches.statistics.claimed, batches.statistics.consumed) == (1, 0)


def test_an_unforeseen_error_at_one_receipt_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def failing(verb: str, key: str) -> None:
        if key == "consumed/a":
            raise OSError("not a mailbox's error")

    store = MemoryStore()
    box = Recorded(store, before=failing)
    with (
        caplog.at_level(logging.WARNING),
        shared_queue(names("a", "b", "c"), mailbox=box, learner_id="n", load=Loader()) as batches,
    ):
        list(batches)
    assert keys(store, "consumed/") == ["consumed/b", "consumed/c"]
    assert batches.statistics.consumed == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the receipt of unit a met an unforeseen error",
        "1 receipts could not be written: these units will be counted as lost",
    ]


# Receipts, counts and observers.


def test_a_receipt_comes_once_the_batch_after_a_units_last_one_is_asked_for() -> None:
    box, clock = MemoryStore(), iter(range(100, 200))
    units = names("a", "b")
    with shared_queue(units, mailbox=box, learner_id="n", load=Loader(2), clock=lambda: float(next(clock))) as batches:
        assert [next(batches), next(batches)] == ["a.0", "a.1"]
        assert keys(box, "consumed/") == []
        next(batches)
        until(lambda: keys(box, "consumed/") == ["consumed/a"])
        assert list(batches) == ["b.1"]
    receipt = Receipt.from_json(box.get("consumed/a") or b"")
    assert (receipt.learner, receipt.batches) == ("n", 2)
    assert receipt.claimed < receipt.started < receipt.finished


def test_without_receipts_nothing_but_claims_and_the_registration_is_written() -> None:
    box = MemoryStore()
    with shared_queue(names("a"), mailbox=box, learner_id="n", load=Loader(), receipts=False) as batches:
        assert list(batches) == ["a.0"]
    assert keys(box, "") == ["alive/n/0000000000", "units/a"]


def test_a_unit_without_batches_is_consumed() -> None:
    box = MemoryStore()
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(0)) as batches:
        assert list(batches) == []
    assert keys(box, "consumed/") == ["consumed/a", "consumed/b"]


def test_counts_are_exact() -> None:
    store = MemoryStore()
    store.put_if_absent("units/a", b"other")
    with shared_queue(names("a", "b", "c"), mailbox=store, learner_id="n", load=Loader(2)) as batches:
        assert batches.statistics.consumed == 0
        assert batches.unit is None
        next(batches)
        assert batches.unit == "b"
        list(batches)
    counts = batches.statistics
    assert (counts.claimed, counts.consumed, counts.conflicts, counts.batches, counts.buffered) == (2, 2, 0, 4, 0)
    assert counts.requests == 2 * 3 + 2
    assert counts.load_seconds > 0
    assert counts.claim_seconds > 0
    assert isinstance(counts, QueueStatistics)


def test_an_observer_is_told_off_the_loops_thread() -> None:
    told: list[tuple[str, ...]] = []
    threads: set[str] = set()

    class Observer:
        def claimed(self, identifier: str, seconds: float) -> None:
            self.note("claimed", identifier)

        def lost(self, identifier: str) -> None:
            self.note("lost", identifier)

        def loaded(self, identifier: str, batches: int, seconds: float) -> None:
            self.note("loaded", identifier, str(batches))

        def consumed(self, identifier: str) -> None:
            self.note("consumed", identifier)

        def note(self, *event: str) -> None:
            told.append(event)
            threads.add(threading.current_thread().name)

    store = MemoryStore()

    def outrun(verb: str, key: str) -> None:
        if (verb, key) == ("put_if_absent", "units/a"):
            store.put_if_absent("units/a", b"winner")

    box = Recorded(store, before=outrun)
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(2), observer=Observer()) as batches:
        list(batches)
    # A unit may be consumed, by another thread, before it is said to be loaded.
    claimed_and_loaded = [event for event in told if event != ("consumed", "b")]
    assert claimed_and_loaded == [("lost", "a"), ("claimed", "b"), ("loaded", "b", "2")]
    assert len(told) == 4
    assert threads == {"shared-queue-prefetch", "shared-queue-receipts"}


# Claiming ahead.


@pytest.mark.parametrize(("claim_ahead", "claimed_with_one_in_use"), [(None, 3), (2, 3), (1, 2), (0, 1)])
def test_claim_ahead_limits_the_work_a_node_holds(claim_ahead: int | None, claimed_with_one_in_use: int) -> None:
    units, box, load = names("a", "b", "c", "d"), MemoryStore(), Loader()
    with shared_queue(units, mailbox=box, learner_id="n", load=load, prefetch=2, claim_ahead=claim_ahead) as batches:
        next(batches)
        until(lambda: len(keys(box, "units/")) >= claimed_with_one_in_use)
        until(lambda: batches.statistics.buffered == claimed_with_one_in_use - 1)
        assert len(keys(box, "units/")) == claimed_with_one_in_use
        assert len(list(batches)) == 3


# The cost of a claim.


def test_listing_does_not_grow_with_the_run() -> None:
    listed: list[int] = []
    store = MemoryStore(observe=lambda request: listed.append(request.keys) if request.operation == "list" else None)
    units = names(*(f"{number:06d}" for number in range(3000)))
    with shared_queue(units, mailbox=store, learner_id="n", load=Loader()) as batches:
        assert len(list(batches)) == 3000
    assert len(listed) == 3000
    assert max(listed) == 0


def test_an_order_unlike_that_of_the_keys_costs_at_most_one_more_page_per_claim() -> None:
    pages: list[int] = []
    store = MemoryStore(observe=lambda request: pages.append(request.keys) if request.operation == "list" else None)
    units = names(*(f"{number:06d}" for number in reversed(range(2500))))
    with shared_queue(units, mailbox=store, learner_id="n", load=Loader()) as batches:
        assert [*batches][:2] == ["002499.0", "002498.0"]
    assert len(pages) <= 2 * 2500
