"""The probe names what is wrong with stores that are broken on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from gradientmail.mailbox import MailboxDenied, MailboxUnavailable, Request
from gradientmail.mailbox.base import Page
from gradientmail.mailbox.faults import Fault, FaultyStore
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.mailbox.probe import Report, examine, latencies
from gradientmail.mailbox.racing import Attempt, judged, payload

RACERS = 3


def results(report: Report) -> dict[str, str]:
    return {check.name: check.result for check in report.checks}


def failures(store: MemoryStore) -> set[str]:
    report = examine(store, keys=3, racers=RACERS)
    assert not report.suitable
    return {check.name for check in report.checks if check.result == "failed"}


class IgnoresTheCondition(MemoryStore):
    """As a store that does not know If-None-Match: each write overwrites."""

    def _create(self, key: str, data: bytes) -> bool:
        super()._remove([key])
        return super()._create(key, data)


class ChecksThenWrites(MemoryStore):
    """Refuses a second write, but lets all racers pass the check before any of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Barrier(RACERS)

    def _create(self, key: str, data: bytes) -> bool:
        if key in self._objects:
            return False
        if "/race/" in key:
            self.gate.wait(10)
        super()._remove([key])
        return super()._create(key, data)


class OneWinnerButTheLastBytesStay(MemoryStore):
    def _create(self, key: str, data: bytes) -> bool:
        created = super()._create(key, data)
        if not created and "/race/" in key:
            self._objects[key] = data
        return created


class ListsInReverse(MemoryStore):
    def _page(self, prefix: str, after: str) -> Page:
        page = super()._page(prefix, after)
        return Page(page.keys[::-1], page.resume)


class IgnoresAfter(MemoryStore):
    def _page(self, prefix: str, after: str) -> Page:
        return super()._page(prefix, "")


class IgnoresThePrefix(MemoryStore):
    def _page(self, prefix: str, after: str) -> Page:
        return super()._page(prefix.rpartition("/")[0], after)


class ListsLate(MemoryStore):
    """The newest object is missing from the first listing after its write."""

    def __init__(self) -> None:
        super().__init__()
        self.newest = ""

    def _create(self, key: str, data: bytes) -> bool:
        self.newest = key
        return super()._create(key, data)

    def _page(self, prefix: str, after: str) -> Page:
        newest, self.newest = self.newest, ""
        page = super()._page(prefix, after)
        return Page([key for key in page.keys if key != newest], page.resume)


class ReadsLate(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.unseen: set[str] = set()

    def _create(self, key: str, data: bytes) -> bool:
        if "/write/" in key:
            self.unseen.add(key)
        return super()._create(key, data)

    def _read(self, key: str) -> bytes | None:
        if key in self.unseen:
            self.unseen.remove(key)
            return None
        return super()._read(key)


class ForgetsToDelete(MemoryStore):
    def _remove(self, keys: Sequence[str]) -> None:
        super()._remove([key for key in keys if "/write/" not in key])


class ComparesUtf16(MemoryStore):
    def _page(self, prefix: str, after: str) -> Page:
        page = super()._page(prefix, after)
        return Page(sorted(page.keys, key=lambda key: key.encode("utf-16-be")), page.resume)


class ClockIsWrong(MemoryStore):
    def store_time(self) -> float:
        return 0.0


def test_a_sound_store_passes_and_is_left_empty() -> None:
    store = MemoryStore()
    store.put_if_absent("units/0", b"a user's")
    report = examine(store, keys=3, racers=RACERS)
    assert report.suitable
    assert set(results(report).values()) == {"passed", "skipped"}
    assert results(report)["clocks agree"] == "skipped"
    assert list(store.list()) == ["units/0"]


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (IgnoresTheCondition(), {"a key is created once", "a race has one winner", "losers read the winner's bytes"}),
        (OneWinnerButTheLastBytesStay(), {"losers read the winner's bytes"}),
        (ListsInReverse(), {"listings are in byte order", "listings start after a key", "listings keep to a prefix"}),
        (IgnoresAfter(), {"a written object is listed at once", "listings start after a key"}),
        (IgnoresThePrefix(), {"listings keep to a prefix"}),
        (ListsLate(), {"a written object is listed at once"}),
        (ReadsLate(), {"a written object is read at once"}),
        (ForgetsToDelete(), {"a deleted object is gone at once"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_broken_store_is_unsuitable_for_what_is_broken(store: MemoryStore, expected: set[str]) -> None:
    assert expected <= failures(store)


def test_a_store_that_passes_in_sequence_and_lets_all_racers_win_is_found_out() -> None:
    report = examine(ChecksThenWrites(), keys=3, racers=RACERS)
    assert results(report)["a key is created once"] == "passed"
    assert results(report)["a race has one winner"] == "failed"
    detail = next(check.detail for check in report.checks if check.name == "a race has one winner")
    assert detail == "several racers won 3 (race/000000, race/000001, race/000002) of 3 keys"


@pytest.mark.parametrize(
    ("store", "name", "detail"),
    [
        (ComparesUtf16(), "byte order beyond ASCII", "use only ASCII in learner IDs and unit identifiers"),
        (ClockIsWrong(), "clocks agree", "set this machine's clock"),
    ],
)
def test_what_the_queue_can_live_with_is_a_warning(store: MemoryStore, name: str, detail: str) -> None:
    report = examine(store, keys=2, racers=2)
    assert report.suitable
    check = next(check for check in report.checks if check.name == name)
    assert check.result == "warning"
    assert detail in check.detail


@pytest.mark.parametrize(
    ("operation", "name"),
    [("put_if_absent", "may create"), ("get", "may read"), ("list", "may list"), ("delete", "may delete")],
)
def test_each_missing_permission_is_named_and_the_rest_skipped(operation: str, name: str) -> None:
    store = FaultyStore(MemoryStore(), Fault("denied", operations=(operation,)))  # type: ignore[arg-type]
    report = examine(store, keys=2, racers=2)
    assert not report.suitable
    assert [check.name for check in report.checks if check.result == "denied"] == [name]
    assert results(report)["all further checks"] == "skipped"


def test_a_store_that_denies_everything_is_one_error() -> None:
    with pytest.raises(MailboxDenied, match="list of"):
        examine(FaultyStore(MemoryStore(), Fault("denied")))


def test_a_store_that_goes_away_is_one_error_and_is_cleaned_up_when_it_is_back() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, Fault("unavailable", skip=30, count=1))
    with pytest.raises(MailboxUnavailable):
        examine(store, keys=4, racers=2)
    assert list(inner.list()) == []


def test_racers_that_are_not_answered_are_mentioned_as_long_as_the_others_suffice() -> None:
    store = FaultyStore(MemoryStore(), Fault("lost answer", operations=("put_if_absent",), keys="*/race/*", count=2))
    report = examine(store, keys=3, racers=4)
    assert report.suitable
    check = next(check for check in report.checks if check.name == "a race has one winner")
    assert check.result == "warning"
    assert "one winner each; not all were answered: injected: the answer to put_if_absent" in check.detail


def test_races_without_answers_prove_nothing() -> None:
    store = FaultyStore(MemoryStore(), Fault("unavailable", keys="*/race/000001"))
    with pytest.raises(MailboxUnavailable, match="only 1 of 2 races could be judged: injected: 500"):
        examine(store, keys=2, racers=3)


def test_an_interrupted_examination_cleans_up() -> None:
    inner = MemoryStore()

    class Interrupted(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self._objects, self._sorted = inner._objects, inner._sorted

        def _read(self, key: str) -> bytes | None:
            if "/write/" in key:
                assert list(inner.list()) != []
                raise KeyboardInterrupt
            return super()._read(key)

    with pytest.raises(KeyboardInterrupt):
        examine(Interrupted(), keys=2, racers=2)
    assert list(inner.list()) == []


def test_objects_that_cannot_be_removed_are_mentioned() -> None:
    store = FaultyStore(MemoryStore(), Fault("unavailable", operations=("delete",), skip=2))
    report = examine(store, keys=2, racers=2)
    assert report.checks[-1].name == "cleaning up"
    assert report.checks[-1].result == "warning"


def test_the_stores_own_observer_goes_on_and_is_put_back() -> None:
    seen: list[Request] = []
    store = MemoryStore(observe=seen.append)
    report = examine(store, keys=2, racers=2)
    assert len(seen) >= sum(latency.requests for latency in report.latencies) > 10
    assert store.observe == seen.append


@pytest.mark.parametrize(("keys", "racers"), [(0, 2), (1, 1)])
def test_a_race_needs_a_key_and_two(keys: int, racers: int) -> None:
    with pytest.raises(ValueError, match="a race needs at least 1 key and 2 racers"):
        examine(MemoryStore(), keys=keys, racers=racers)


def test_latencies_are_percentiles_of_each_verb() -> None:
    requests = [Request("get", "ok", seconds / 100, 1) for seconds in range(100)] + [Request("list", "ok", 7.0, 1)]
    assert [(row.operation, row.requests, row.median_seconds, row.p95_seconds) for row in latencies(requests)] == [
        ("get", 100, 0.5, 0.95),
        ("list", 1, 7.0, 7.0),
    ]


def attempts(*told: tuple[int, bool | None, bytes | None]) -> Iterator[Attempt]:
    for writer, created, seen in told:
        yield Attempt("k", writer, created, seen, error="lost" if created is None else "")


@pytest.mark.parametrize(
    ("told", "several", "wrong"),
    [
        ([(0, True, payload(0)), (1, False, payload(0))], (), ()),
        ([(0, False, payload(0)), (1, False, payload(0))], (), ()),
        ([(0, None, None), (1, False, payload(0))], (), ()),
        ([(0, True, payload(0)), (1, True, payload(1))], ("k",), ("k",)),
        ([(0, True, payload(0)), (1, True, payload(0))], ("k",), ()),
        ([(0, True, payload(0)), (1, False, payload(1))], (), ("k",)),
        ([(0, True, payload(0)), (1, False, None)], (), ("k",)),
        ([(0, True, payload(1)), (1, False, payload(1))], (), ("k",)),
        ([(0, False, b"torn"), (1, False, b"torn")], (), ("k",)),
    ],
    ids=[
        "one winner",
        "the winner's answer was lost, and told exists",
        "the winner's answer was lost",
        "two winners, two bytes",
        "two winners, one object",
        "the loser reads itself",
        "the loser reads nothing",
        "the winner reads another",
        "nobody wrote this",
    ],
)
def test_races_are_judged_by_answers_and_bytes(
    told: list[tuple[int, bool | None, bytes | None]], several: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    verdict = judged(list(attempts(*told)))
    assert (verdict.several_winners, verdict.wrong_bytes) == (several, wrong)
