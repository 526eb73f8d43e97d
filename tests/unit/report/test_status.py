from dataclasses import replace

import pytest

from gradientmail.progress import NodeProgress
from gradientmail.report.status import run_status
from gradientmail.runstate import Foreign, Learner, RunState

from .simulated import EPOCH, manifest, state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}


def page(**changes: object) -> RunState:
    return state(PAGE, steps=6, unit_steps=1, lanes=4, **changes)  # type: ignore[arg-type]


def test_a_complete_run() -> None:
    status = run_status(page())
    assert status.standing == "complete"
    assert (status.total, status.consumed, status.in_progress, status.lost, status.unclaimed) == (24, 24, 0, 0, 0)
    assert status.percent_consumed == 100.0
    assert status.estimated_seconds_left is None
    assert [node.presence for node in status.nodes] == ["left"] * 4


@pytest.mark.parametrize(("silent_after", "lost", "in_progress"), [(60.0, 1, 0), (1e9, 0, 1)])
def test_a_unit_is_lost_once_its_owner_has_been_silent_for_long(
    silent_after: float, lost: int, in_progress: int
) -> None:
    status = run_status(page(dies=("b", 7.0)), silent_after=silent_after)
    assert (status.lost, status.in_progress) == (lost, in_progress)
    assert status.claimed == status.consumed + status.lost + status.in_progress
    dead = status.nodes[1]
    assert (dead.claimed, dead.consumed, dead.lost, dead.in_progress) == (4, 3, lost, in_progress)


def test_a_run_whose_nodes_are_gone_with_units_missing_has_ended() -> None:
    assert run_status(page(dies=("b", 7.0))).standing == "ended"
    assert run_status(page(dies=("b", 7.0)), silent_after=1e9).standing == "running"


def test_counts_add_up_to_the_total_at_any_moment() -> None:
    whole = page()
    some = sorted(whole.consumed)[:10]
    half = replace(
        whole,
        claimed=frozenset(sorted(whole.consumed)[:14]),
        consumed=frozenset(some),
        receipts={name: (whole.receipts or {})[name] for name in some},
        owners=dict.fromkeys(sorted(whole.consumed)[10:14], "a-0-abc123"),
    )
    status = run_status(half)
    assert status.total == 24
    assert (status.unclaimed or 0) + status.in_progress + status.consumed + status.lost == 24
    assert sum(node.claimed for node in status.nodes) == status.claimed == 14
    assert sum(node.consumed for node in status.nodes) == status.consumed == 10


def test_time_left_is_batches_left_over_the_rate_of_the_live_nodes() -> None:
    word = NodeProgress(
        "a-0-abc123", "a-0", time=EPOCH, phase="training", batches=60, train_seconds=25.0, wait_seconds=5.0
    )
    run = manifest(["a"], steps=100, unit_steps=20, lanes=1)
    going = RunState(
        read_at=EPOCH + 3,
        manifest=run,
        units=run.spec.data.grid(),
        claimed=frozenset({"000000-0.json", "000001-0.json"}),
        consumed=frozenset({"000000-0.json"}),
        owners={"000001-0.json": "a-0-abc123"},
        learners={"a-0-abc123": Learner("a-0-abc123", "a-0", word, 4)},
    )
    status = run_status(going)
    assert status.estimated_seconds_left == pytest.approx(80 / 2.0)
    assert status.percent_consumed == 20.0
    assert status.node_counts_from == "heartbeats"


def test_before_the_first_node_a_run_is_waiting_and_names_the_planned_nodes() -> None:
    run = manifest(["a", "b"], steps=4, unit_steps=1, lanes=1)
    status = run_status(RunState(read_at=EPOCH, manifest=run, units=run.spec.data.grid()))
    assert status.standing == "waiting"
    assert [(node.node, node.presence) for node in status.nodes] == [("a-0", "not started"), ("b-0", "not started")]


def test_learners_without_any_word_are_unknown_and_nothing_of_theirs_is_called_lost() -> None:
    foreign_library = RunState(
        read_at=EPOCH,
        claimed=frozenset({"000000-0.json"}),
        owners={"000000-0.json": "node-0"},
        learners={"node-0": Learner("node-0", "node-0")},
        receipts={},
    )
    status = run_status(foreign_library)
    assert (status.standing, status.total, status.percent_consumed) == ("unknown", None, None)
    assert (status.lost, status.in_progress) == (0, 1)


def test_a_clock_ahead_is_said_and_never_makes_an_age_negative() -> None:
    word = NodeProgress("a-0-abc123", "a-0", time=EPOCH + 30, phase="training")
    run = RunState(read_at=EPOCH, learners={"a-0-abc123": Learner("a-0-abc123", "a-0", word, 1)}, receipts={})
    (node,) = run_status(run).nodes
    assert (node.last_seen_seconds, node.clock_ahead_seconds) == (0.0, 30.0)


def test_json_holds_foreign_objects_and_all_fields() -> None:
    record = run_status(replace(page(), foreign=Foreign(2, ("units/x", "alive/y")))).to_dict()
    assert record["foreign_objects"] == 2
    assert record["foreign_examples"] == ("units/x", "alive/y")
    assert record["nodes"][0]["learner"] == "a-0-abc123"


def test_a_restarted_nodes_units_are_counted_over_all_its_learners() -> None:
    run = page(dies=("b", 7.0))
    again = Learner("b-0-def456", "b-0", NodeProgress("b-0-def456", "b-0", time=run.read_at, phase="training"), 1)
    status = run_status(replace(run, learners={**run.learners, again.name: again}))
    node = status.nodes[1]
    assert (node.learner, node.presence, node.restarts) == ("b-0-def456", "live", 1)
    assert (node.consumed, node.lost, node.in_progress) == (3, 1, 0)
