"""Each sentence of the page's sections on loading, claiming and running out, in the page's order."""

import threading
from collections.abc import Iterator

import pytest

from gradientmail import MailboxDenied, first_lane, grid
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.shared_queue import shared_queue
from tests.unit.patterns.doubles import Loader, Recorded
from tests.waiting import until


def names(*identifiers: str) -> dict[str, str]:
    return {identifier: identifier for identifier in identifiers}


def claims(box: MemoryStore) -> dict[str, str]:
    return {key: (box.get(key) or b"").decode() for key in box.list("units/")}


def test_reservations_and_loading_run_on_a_background_thread() -> None:
    box, load = Recorded(MemoryStore()), Loader(2)
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=load, receipts=False) as batches:
        assert list(batches) == ["a.0", "a.1", "b.0", "b.1"]
    assert box.threads == load.threads == {"shared-queue-prefetch"}
    assert threading.current_thread().name != "shared-queue-prefetch"


def test_units_and_batches_may_be_anything() -> None:
    units = {"x": 3, "y": 2}
    with shared_queue(units, mailbox=MemoryStore(), learner_id="n", load=range) as batches:
        assert list(batches) == [0, 1, 2, 0, 1]


def test_the_thread_reads_ahead_while_a_batch_is_in_use() -> None:
    load = Loader(3)
    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches:
        assert next(batches) == "a.0"
        until(lambda: load.loaded == ["a.0", "a.1", "a.2"])


def test_prefetch_limits_the_buffer() -> None:
    load = Loader(100)
    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load, prefetch=8) as batches:
        until(lambda: batches.statistics.buffered == 8)
        next(batches)
        until(lambda: batches.statistics.buffered == 8)
        assert len(load.loaded) == 9


def test_a_full_buffer_holds_back_the_next_unit() -> None:
    box, load = MemoryStore(), Loader(2)
    with shared_queue(names("a", "b", "c"), mailbox=box, learner_id="n", load=load, prefetch=2) as batches:
        until(lambda: batches.statistics.buffered == 2)
        assert list(claims(box)) == ["units/a"]
        next(batches)
        until(lambda: list(claims(box)) == ["units/a", "units/b"])


def test_after_a_unit_the_thread_looks_for_another() -> None:
    box = MemoryStore()
    with shared_queue(names("a", "b", "c"), mailbox=box, learner_id="n", load=Loader()) as batches:
        until(lambda: list(claims(box)) == ["units/a", "units/b", "units/c"])
        assert batches.statistics.batches == 0


def test_follows_the_order_of_the_mapping() -> None:
    with shared_queue(names("c", "a", "b"), mailbox=MemoryStore(), learner_id="n", load=Loader()) as batches:
        assert list(batches) == ["c.0", "a.0", "b.0"]


def test_skips_reservations_already_in_the_mailbox() -> None:
    box = MemoryStore()
    for taken in ("a", "c"):
        box.put_if_absent(f"units/{taken}", b"other")
    recorded = Recorded(box)
    with shared_queue(names("a", "b", "c", "d"), mailbox=recorded, learner_id="n", load=Loader()) as batches:
        assert list(batches) == ["b.0", "d.0"]
    assert ("put_if_absent", "units/a") not in recorded.calls
    assert ("put_if_absent", "units/c") not in recorded.calls


def test_nodes_may_prefer_different_slices_of_the_same_units() -> None:
    units, box = grid(steps=2, unit_steps=1, lanes=3), MemoryStore()
    orders = []
    for lane in range(3):
        preferred = first_lane(units, lane)
        with shared_queue(
            preferred, mailbox=box, learner_id=f"n{lane}", load=lambda unit: [unit], claim_ahead=0
        ) as batches:
            first = next(batches)
            orders.append((first.first, first.lane))
    assert orders == [(0, 0), (0, 1), (0, 2)]
    assert set(claims(box).values()) == {"n0", "n1", "n2"}


def test_batches_come_in_step_order_and_the_oldest_first() -> None:
    def load(unit: str) -> Iterator[tuple[int, str]]:
        for step in range(3):
            yield step, unit

    with shared_queue(names("a", "b"), mailbox=MemoryStore(), learner_id="n", load=load, prefetch=4) as batches:
        assert list(batches) == [(0, "a"), (1, "a"), (2, "a"), (0, "b"), (1, "b"), (2, "b")]


def test_when_no_unit_is_left_the_thread_ends_and_the_loop_drains_the_buffer() -> None:
    with shared_queue(names("a", "b"), mailbox=MemoryStore(), learner_id="n", load=Loader()) as batches:
        until(lambda: not batches.alive)
        assert batches.statistics.buffered == 2
        assert list(batches) == ["a.0", "b.0"]
        with pytest.raises(StopIteration):
            next(batches)


def test_a_node_that_finds_nothing_leaves_while_others_go_on() -> None:
    box, slow = MemoryStore(), Loader(2)
    units = names("a", "b")
    with shared_queue(units, mailbox=box, learner_id="slow", load=slow, prefetch=1) as mine:
        next(mine)
        with shared_queue(units, mailbox=box, learner_id="quick", load=Loader()) as theirs:
            assert list(theirs) == ["b.0"]
        assert list(mine) == ["a.1"]


def test_ownership_is_recorded_under_units_as_the_plain_learner_id() -> None:
    box = MemoryStore()
    with shared_queue(names("000003-1.json"), mailbox=box, learner_id="node-1", load=Loader()) as batches:
        list(batches)
    assert claims(box) == {"units/000003-1.json": "node-1"}


def test_a_reservation_lists_then_writes_then_reads_back() -> None:
    box = Recorded(MemoryStore())
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader()) as batches:
        list(batches)
    assert box.of_units() == (
        ("list", "units/>"),
        ("put_if_absent", "units/a"),
        ("get", "units/a"),
        ("list", "units/>units/a"),
        ("put_if_absent", "units/b"),
        ("get", "units/b"),
    )


def test_of_two_nodes_at_one_unit_the_loser_takes_the_next_in_its_order() -> None:
    store = MemoryStore()

    def outrun(verb: str, key: str) -> None:
        if (verb, key) == ("put_if_absent", "units/a"):
            store.put_if_absent("units/a", b"winner")

    box = Recorded(store, before=outrun)
    with shared_queue(names("a", "b"), mailbox=box, learner_id="loser", load=Loader()) as batches:
        assert list(batches) == ["b.0"]
        assert batches.statistics.conflicts == 1
    assert box.of_units()[:5] == (
        ("list", "units/>"),
        ("put_if_absent", "units/a"),
        ("get", "units/a"),
        ("put_if_absent", "units/b"),
        ("get", "units/b"),
    )


def test_reservations_of_a_node_that_stops_early_are_not_reassigned() -> None:
    box, units = MemoryStore(), names("a", "b", "c")
    with shared_queue(units, mailbox=box, learner_id="early", load=Loader(2), prefetch=1) as batches:
        next(batches)
    with shared_queue(units, mailbox=box, learner_id="late", load=Loader()) as rest:
        assert list(rest) == ["b.0", "c.0"]
    assert claims(box)["units/a"] == "early"


def test_a_new_run_needs_a_new_prefix() -> None:
    box, units = MemoryStore(), names("a", "b")
    with shared_queue(units, mailbox=box, learner_id="first", load=Loader()) as batches:
        assert len(list(batches)) == 2
    with shared_queue(units, mailbox=box, learner_id="second", load=Loader()) as batches:
        assert list(batches) == []


def test_leaving_waits_for_the_loader_under_way_and_loads_nothing_more() -> None:
    load = Loader(5, held=True)
    queue = shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load)
    leaver = threading.Thread(target=lambda: queue.__exit__(None, None, None))
    queue.__enter__()
    assert load.started.wait(20)
    leaver.start()
    until(lambda: queue._buffer.stopped)
    assert queue.alive
    load.allow(5)
    leaver.join(20)
    assert not queue.alive
    assert load.loaded == ["a.0"]


def test_leaving_waits_for_the_mailbox_operation_under_way() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(verb: str, key: str) -> None:
        if (verb, key) == ("get", "units/a"):
            reached.set()
            assert go_on.wait(20)

    box = Recorded(MemoryStore(), before=hold)
    queue = shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader())
    leaver = threading.Thread(target=lambda: queue.__exit__(None, None, None))
    queue.__enter__()
    assert reached.wait(20)
    leaver.start()
    until(lambda: queue._buffer.stopped)
    assert queue.alive
    go_on.set()
    leaver.join(20)
    assert not queue.alive
    assert box.calls[-1] == ("get", "units/a")


def test_errors_of_the_loader_come_after_the_batches_before_them_with_their_traceback() -> None:
    def load(unit: str) -> Iterator[str]:
        yield f"{unit}.0"
        yield f"{unit}.1"
        raise OSError("the disk has gone")

    with shared_queue(names("a"), mailbox=MemoryStore(), learner_id="n", load=load) as batches:
        until(lambda: not batches.alive)
        assert [next(batches), next(batches)] == ["a.0", "a.1"]
        with pytest.raises(OSError, match="the disk has gone") as caught:
            next(batches)
    assert "load" in [entry.name for entry in caught.traceback]


def test_errors_of_the_mailbox_come_after_the_batches_before_them() -> None:
    def deny(verb: str, key: str) -> None:
        if (verb, key) == ("put_if_absent", "units/b"):
            raise MailboxDenied("no longer yours")

    box = Recorded(MemoryStore(), before=deny)
    with shared_queue(names("a", "b"), mailbox=box, learner_id="n", load=Loader(2)) as batches:
        until(lambda: not batches.alive)
        assert [next(batches), next(batches)] == ["a.0", "a.1"]
        with pytest.raises(MailboxDenied):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)
