"""Counts that survive the pods they come from."""

from __future__ import annotations

import tracemalloc

import pytest

from gradientmail.run import Data
from gradientmail.units import grid
from gradientrun.accounts import Record, Units, most_lost, read_records, tally, unit_count, updated, write_records
from gradientrun.observed import Counts, PodView
from tests.unit.controller.manifests import a_run, ended, last_words, observed, pod_manifest, running

A, B = "first-fast-0-aaaaa", "first-fast-0-bbbbb"


def pods(*manifests: dict[str, object]) -> tuple[PodView, ...]:
    return observed(a_run(), *manifests).pods


def test_a_live_learner_is_counted_by_its_metrics() -> None:
    assert updated([], pods(pod_manifest(**running())), {A: Counts(claimed=3, consumed=2)}) == [
        Record("fast-0", A, 3, 2)
    ]


def test_a_learner_that_does_not_answer_keeps_its_counts() -> None:
    assert updated([Record("fast-0", A, 3, 2)], pods(pod_manifest(**running())), {}) == [Record("fast-0", A, 3, 2)]


def test_counts_never_fall() -> None:
    late = {A: Counts(claimed=1, consumed=0)}
    assert updated([Record("fast-0", A, 3, 2)], pods(pod_manifest(**running())), late) == [Record("fast-0", A, 3, 2)]


def test_last_words_are_exact_and_beat_a_late_scrape() -> None:
    pod = pod_manifest(**ended(143, last_words(4, 3, phase="stopped")))
    assert updated([Record("fast-0", A, 3, 2)], pods(pod), {A: Counts(9, 9)}) == [Record("fast-0", A, 4, 3)]


def test_a_learner_killed_without_a_word_keeps_its_last_counts() -> None:
    pod = pod_manifest(**ended(137, "", reason="OOMKilled"))
    assert updated([Record("fast-0", A, 3, 2)], pods(pod), {}) == [Record("fast-0", A, 3, 2)]


def test_a_pod_that_is_gone_is_summed_under_its_node_once() -> None:
    before = [Record("fast-0", "", 10, 8), Record("fast-0", A, 3, 2), Record("fast-0", B, 1, 0)]
    present = pods(pod_manifest("fast-0", "bbbbb", **running()))
    once = updated(before, present, {})
    assert once == [Record("fast-0", "", 13, 10), Record("fast-0", B, 1, 0)]
    assert updated(once, present, {}) == once


def test_a_pod_that_is_gone_is_not_counted_once_more_after_another_controller_has_summed_it() -> None:
    gone = pod_manifest(**ended(143, last_words(4, 3))) | {"gone": True}
    assert updated([Record("fast-0", A, 3, 2)], pods(gone), {}) == [Record("fast-0", A, 4, 3)]
    summed = [Record("fast-0", "", 4, 3)]
    assert updated(summed, pods(gone), {}) == summed


def test_records_are_written_and_read_back() -> None:
    records = [Record("fast-0", "", 10, 8), Record("slow-0", "first-slow-0-aaaaa", 3, 2)]
    assert read_records({"learners": write_records(records)}) == records


@pytest.mark.parametrize(
    ("live", "exhausted", "settled", "expected"),
    [
        ({A, B}, False, False, Units(total=8, claimed=6, consumed=4, lost=0)),
        ({B}, False, False, Units(total=8, claimed=6, consumed=4, lost=1)),
        (set(), False, False, Units(total=8, claimed=6, consumed=4, lost=2)),
        ({B}, True, False, Units(total=8, claimed=8, consumed=4, lost=1)),
        (set(), True, False, Units(total=8, claimed=8, consumed=4, lost=2)),
        (set(), True, True, Units(total=8, claimed=8, consumed=4, lost=4)),
    ],
)
def test_units_in_each_state_of_their_owners(live: set[str], exhausted: bool, settled: bool, expected: Units) -> None:
    records = [Record("fast-0", A, 3, 2), Record("fast-0", B, 3, 2)]
    assert tally(8, records, frozenset(live), exhausted=exhausted, settled=settled) == expected


def test_percent_is_100_only_when_all_are_consumed() -> None:
    assert Units(total=1000, claimed=1000, consumed=999, lost=1).percent == 99
    assert Units(total=1000, claimed=1000, consumed=1000, lost=0).percent == 100


@pytest.mark.parametrize("taper", [False, True])
@pytest.mark.parametrize(("steps", "unit_steps", "lanes"), [(4000, 20, 4), (41, 20, 3), (7, 20, 1)])
def test_units_are_counted_as_nodes_count_them(steps: int, unit_steps: int, lanes: int, taper: bool) -> None:
    data = Data(steps=steps, batch=lanes, lanes=lanes, unit_steps=unit_steps, taper=taper)
    assert unit_count(data) == len(grid(steps=steps, unit_steps=unit_steps, lanes=lanes, taper=taper))


def test_counting_the_most_units_there_can_be_takes_no_memory_to_speak_of() -> None:
    data = Data(steps=1_000_000, batch=1, lanes=1, unit_steps=1, taper=True)
    tracemalloc.start()
    try:
        assert unit_count(data) == 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("limit", "total", "expected"), [("5%", 800, 40), ("5%", 19, 0), ("0%", 800, 0), ("12", 8, 12)]
)
def test_the_most_units_that_may_be_lost(limit: str, total: int, expected: int) -> None:
    assert most_lost(limit, total) == expected
