"""The session over a real mailbox, with its own thread: what the page's loop sees."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_model
from torch import nn

from gradientmail.exchange import Diverged, ExchangeMismatch, ExchangeUnreadable, Session
from gradientmail.exchange.assembling import NoExchange, assembled, metadata_of
from gradientmail.exchange.keys import RUN
from gradientmail.exchange.session import poll_seconds_after
from gradientmail.layout import FINAL
from gradientmail.mailbox import Mailbox, MailboxUnavailable
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.retrying import Stopped
from gradientmail.patterns.shared_queue import LearnerInUse
from tests.unit.exchange.doubles import BOUND_SECONDS, DEVICES, Faulty, Small
from tests.waiting import until

OPTIONS: dict[str, Any] = {"sync_every": 2, "fragments": 2, "patience_seconds": 2.0, "poll_seconds": 0.002}


def session(model: nn.Module, box: Mailbox, learner: str, **options: Any) -> Session:
    return Session(model, mailbox=box, learner_id=learner, **{**OPTIONS, **options})


def small(seed: int = 0, device: str = "cpu") -> Small:
    torch.manual_seed(seed)
    return Small().to(device)


@torch.no_grad()
def move(model: nn.Module, by: float) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(by)


def run_until(one: Session, model: nn.Module, versions: int, by: float = 0.0) -> None:
    def step() -> None:
        move(model, by)
        one.step(samples=1)

    until(lambda: min(one.statistics.versions) >= versions, meanwhile=step)


@pytest.mark.parametrize("device", DEVICES)
def test_a_lone_node_makes_versions_and_writes_the_final_model(device: str) -> None:
    box, model = MemoryStore(), small(device=device)
    with session(model, box, "node-0") as one:
        run_until(one, model, 3, by=0.01)
    final = box.get(FINAL)
    assert final is not None
    told = json.loads(final[8 : 8 + int.from_bytes(final[:8], "little")])["__metadata__"]
    steps = one.statistics.steps
    assert told["steps"] == told["samples"] == str(steps)
    assert json.loads(told["contributors"]) == {"node-0": {"steps": steps, "samples": steps}}
    assert set(load(final)) == {
        "embed.weight", "middle.weight", "middle.bias", "frozen.weight", "frozen.bias", "counted",
    }  # fmt: skip
    assert not list(box.list("exchange/members/"))


def test_the_final_model_loads_back_to_the_same_outputs(tmp_path: Any) -> None:
    box, model = MemoryStore(), small()
    with session(model, box, "node-0") as one:
        run_until(one, model, 2, by=0.03)
    final = box.get(FINAL)
    assert final is not None
    (tmp_path / "final.safetensors").write_bytes(final)
    other = small(seed=1)
    load_model(other, tmp_path / "final.safetensors")
    tokens = torch.arange(8)
    assert torch.equal(other(tokens), model(tokens))
    assert other.head.weight is other.embed.weight


def test_nodes_learn_from_each_other_and_end_with_one_model() -> None:
    """One node's steps move its parameters up, the other's do not: by the mean, both end in between."""
    box, models = MemoryStore(), [small(), small(seed=7)]
    options = {"outer_lr": 1.0, "outer_momentum": 0.0, "transfer_dtype": "float32", "sync_every": 1}
    first = session(models[0], box, "node-0", **options)
    second = session(models[1], box, "node-1", **options)
    with first, second:
        start = models[0].embed.weight.detach().clone()
        assert torch.equal(models[1].embed.weight, start), "a node that joins starts from the run's version"
        for _ in range(5):
            move(models[0], 0.1)
            first.step(samples=1)
            second.step(samples=1)

        def both() -> None:
            first.step(samples=1)
            second.step(samples=1)

        until(lambda: second.statistics.merged >= 4, meanwhile=both)
    torch.testing.assert_close(models[0].embed.weight, models[1].embed.weight)
    moved = (models[0].embed.weight - start).mean().item()
    assert 0.1 < moved < 0.45
    assert first.statistics.adopted > 0


def test_step_waits_for_nobody_while_the_store_hangs() -> None:
    box, model = Faulty(MemoryStore()), small()
    with session(model, box, "node-0") as one:
        box.gate.clear()
        for _ in range(200):
            one.step(samples=1)
        assert one.statistics.steps == 200
        box.gate.set()
    others = box.threads - {threading.current_thread().name}
    assert others
    assert all(name.startswith("session-") for name in others)


def test_nothing_but_joining_and_leaving_touches_the_store_on_the_training_thread() -> None:
    box, model = Faulty(MemoryStore()), small()
    with session(model, box, "node-0") as one:
        box.threads.clear()
        run_until(one, model, 2)
        assert box.threads
        assert all(name.startswith("session-") for name in box.threads)


def test_an_outage_is_weathered_and_lost_answers_change_nothing() -> None:
    box, model = Faulty(MemoryStore()), small()
    with session(model, box, "node-0") as one:
        run_until(one, model, 1)
        box.stopped = True
        for _ in range(20):
            one.step(samples=1)
        box.stopped = False
        box.lose_answers = True
        run_until(one, model, 4, by=0.01)
        steps = one.statistics.steps
        box.lose_answers = False
    final = box.get(FINAL)
    assert final is not None
    assert json.loads(final[8 : 8 + int.from_bytes(final[:8], "little")])["__metadata__"]["steps"] == str(steps)


def test_an_outage_longer_than_allowed_reaches_step() -> None:
    box, model = Faulty(MemoryStore()), small()
    one = session(model, box, "node-0", outage_seconds=0.0, flush_seconds=0.0)
    with pytest.raises(MailboxUnavailable, match="has not answered"):
        with one:
            box.stopped = True
            until(lambda: False, meanwhile=lambda: one.step(samples=1))


def test_leaving_while_the_store_is_stopped_ends_in_time() -> None:
    box, model = Faulty(MemoryStore()), small()
    with session(model, box, "node-0", flush_seconds=0.1) as one:
        one.step(samples=1)
        box.stopped = True
    assert not one.alive


def test_leaving_can_be_hurried_before_and_while_it_waits() -> None:
    for hurry_after in (0.0, 0.2):
        box, model = Faulty(MemoryStore()), small()
        one = session(model, box, "node-0", flush_seconds=3600.0)
        one.__enter__()
        one.step(samples=1)
        box.stopped = True
        leaving = threading.Thread(target=one.__exit__, args=(None, None, None))
        timer = threading.Timer(hurry_after, one.leave_within, (0.1,))
        timer.start()
        leaving.start()
        leaving.join(BOUND_SECONDS)
        timer.join()
        assert not leaving.is_alive()


def test_joining_can_be_given_up() -> None:
    box = Faulty(MemoryStore(), stopped=True)
    one = session(small(), box, "node-0", outage_seconds=3600.0)
    timer = threading.Timer(0.1, one.leave_within, (1.0,))
    timer.start()
    with pytest.raises(Stopped):
        one.__enter__()
    timer.join()
    assert list(box.inner.list()) == []


def test_a_node_that_leaves_waits_for_the_dead_no_longer_than_it_has_time() -> None:
    box, model = MemoryStore(), small()
    with session(small(), box, "node-1"):  # takes part, and never makes a step
        with session(model, box, "node-0", patience_seconds=3600.0, flush_seconds=6.0) as one:
            move(model, 0.1)
            one.step(samples=3)
        assert (one.statistics.merged, one.statistics.final_samples) == (2, 3)
        assert metadata_of(box.get(FINAL) or b"")["samples"] == "3"


def test_a_last_node_whose_steps_cannot_be_merged_in_time_writes_what_the_run_has() -> None:
    box, model = MemoryStore(), small()
    with session(model, box, "node-0", flush_seconds=0.0) as one:
        run_until(one, model, 3, by=0.01)
        with one._lock:
            one._stop.set()
        one._thread.join(BOUND_SECONDS)
        move(model, 0.5)
        one._stop.clear()
        one.step(samples=1)
    told = metadata_of(box.get(FINAL) or b"")
    assert 0 < int(told["samples"]) < one.statistics.steps
    assert int(told["samples"]) == one.statistics.final_samples
    tensors = load(box.get(FINAL) or b"")
    assert torch.equal(tensors["embed.weight"], model.embed.weight), "the model is the one that was written"


def test_a_run_without_a_step_leaves_no_final_model() -> None:
    box = MemoryStore()
    with session(small(), box, "node-0") as one:
        pass
    assert box.get(FINAL) is None
    assert one.statistics.final_samples == 0


def test_the_answer_to_a_final_model_may_be_lost() -> None:
    box, model = Faulty(MemoryStore()), small()
    with session(model, box, "node-0") as one:
        run_until(one, model, 2, by=0.01)
        box.lose_answers = True
    assert one.statistics.final_samples == one.statistics.samples > 0


def test_leaving_by_an_error_contributes_nothing_more() -> None:
    box, model = MemoryStore(), small()
    with pytest.raises(ZeroDivisionError):
        with session(model, box, "node-0", sync_every=1000) as one:
            one.step(samples=1)
            raise ZeroDivisionError
    assert one.statistics.contributions == 0
    assert box.get(FINAL) is None
    assert not list(box.list("exchange/members/"))


def test_parameters_that_are_not_finite_are_never_sent() -> None:
    box, model = MemoryStore(), small()
    with pytest.raises(Diverged, match=r"fragment \d .* are not finite"):
        with session(model, box, "node-0") as one:
            move(model, float("nan"))
            until(lambda: False, meanwhile=lambda: one.step(samples=1))
    assert not list(box.list("exchange/rounds/"))


def test_a_node_with_other_options_is_refused_and_told() -> None:
    box = MemoryStore()
    with session(small(), box, "node-0"):
        with pytest.raises(ExchangeMismatch, match="sync_every is 7 here and 2 in the run, as 'node-0' set it"):
            session(small(), box, "node-1", sync_every=7).__enter__()


def test_a_node_with_another_model_is_refused_and_told() -> None:
    box = MemoryStore()
    with session(small(), box, "node-0"):
        with pytest.raises(ExchangeMismatch, match=r"'[\w.]+' has shape \[.+\] here and has shape \[.+\] in the run"):
            session(Small(width=6), box, "node-1").__enter__()
        with pytest.raises(ExchangeMismatch, match=r"'\w+' has shape .* here and does not exist in the run"):
            model = small()
            model.extra = nn.Parameter(torch.zeros(3))
            session(model, box, "node-1").__enter__()


def test_a_learner_id_serves_one_process() -> None:
    box = MemoryStore()
    with session(small(), box, "node-0") as one:
        with pytest.raises(LearnerInUse, match="node-0"):
            session(small(), box, "node-0").__enter__()
        one.step(samples=1)
    with pytest.raises(LearnerInUse, match="node-0"):
        session(small(), box, "node-0").__enter__()


def test_a_run_of_another_protocol_is_refused() -> None:
    box = MemoryStore()
    box.put_if_absent(RUN, b'{"protocol": 99}')
    with pytest.raises(ValueError, match="it is of protocol 99, this node speaks 1"):
        session(small(), box, "node-0").__enter__()


def test_a_late_node_starts_from_the_newest_versions() -> None:
    box, model = MemoryStore(), small()
    with session(model, box, "node-0") as one:
        run_until(one, model, 3, by=0.02)
        late = small(seed=5)
        with session(late, box, "node-1") as two:
            assert min(two.statistics.versions) >= 2
            assert (late.embed.weight - small().embed.weight).mean().item() > 0.02
            assert torch.equal(late.frozen.weight, small(seed=5).frozen.weight), "frozen parameters stay the node's own"


def test_a_damaged_version_stops_nobody_but_a_node_that_joins() -> None:
    box, model = MemoryStore(), small()
    with session(model, box, "node-0") as one:
        run_until(one, model, 2)
        with one._lock:
            versions = {key for key in box.list("exchange/rounds/") if key.endswith("/version")}
            blobs = list(box.list("exchange/blobs/"))
            box.delete(blobs)
            for key in blobs:
                box.put_if_absent(key, b"damaged")
        assert versions
        with pytest.raises(ExchangeUnreadable, match=r"exchange/blobs/.* is damaged|newest versions|cannot be read"):
            session(small(), box, "node-1").__enter__()
        run_until(one, model, max(one.statistics.versions) + 4)
        with session(small(), box, "node-2"):
            pass


def test_export_assembles_a_run_that_is_going_on() -> None:
    box, model = MemoryStore(), small()
    with pytest.raises(NoExchange, match=r"the mailbox holds no exchange/run\.json"):
        assembled(box)
    with session(model, box, "node-0") as one:
        run_until(one, model, 2, by=0.05)
        tensors = load(assembled(box))
    assert set(tensors) == {"embed.weight", "middle.weight", "middle.bias"}
    assert tensors["middle.weight"].dtype == torch.bfloat16
    assert (tensors["embed.weight"] - small().embed.weight).mean().item() > 0.04


def test_a_compiled_node_and_a_plain_one_share_a_run() -> None:
    box, plain, compiled = MemoryStore(), small(), torch.compile(small())
    with session(plain, box, "node-0"), session(compiled, box, "node-1") as two:  # type: ignore[arg-type]
        two.step(samples=1)
        assert two.statistics.steps == 1


def test_objects_stay_bounded_however_long_the_run() -> None:
    box, model, most = MemoryStore(), small(), 0
    with session(model, box, "node-0", sync_every=1) as one:
        for versions in range(1, 30):
            run_until(one, model, versions)
            most = max(most, len(list(box.list())))
    # Per fragment and version: a contribution, a record and four blobs; five versions at most; run.json and a member.
    assert most <= 2 * 5 * 6 + 2


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("sync_every", 0, "sync_every is 0: expected at least 1"),
        ("fragments", 0, "fragments is 0: expected from 1 to 9999"),
        ("outer_lr", -1.0, "outer_lr is -1.0: expected more than 0"),
        ("outer_momentum", 1.0, "outer_momentum is 1.0: expected at least 0 and less than 1"),
        ("patience_seconds", -1.0, "patience_seconds is -1.0: expected at least 0"),
        ("transfer_dtype", torch.float16, "transfer_dtype is torch.float16: expected one of bfloat16, float32"),
        ("poll_seconds", 0.0, "poll_seconds is 0.0: expected more than 0, or None"),
    ],
)
def test_options_out_of_range_are_named(option: str, value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace(".", r"\.")):
        session(small(), MemoryStore(), "node-0", **{option: value})


def test_models_that_cannot_be_exchanged_are_refused() -> None:
    with pytest.raises(ValueError, match="no parameter that needs gradients"):
        session(nn.ReLU(), MemoryStore(), "node-0")
    with pytest.raises(ValueError, match="'weight' has no values yet"):
        session(nn.LazyLinear(3), MemoryStore(), "node-0")
    with pytest.raises(ValueError, match=r"'weight' is .*complex64"):
        session(nn.Linear(2, 2, bias=False, dtype=torch.complex64), MemoryStore(), "node-0")


@pytest.mark.parametrize(
    ("elapsed", "steps", "advanced", "seconds"),
    [
        (0.0, 0, 0, 0.05),
        (10.0, 1, 0, 0.5),
        (100.0, 500, 2, 0.5),  # ten rounds by its own steps
        (100.0, 100, 10, 0.5),  # two by its own steps, ten by those of a faster node
        (10.0, 1000, 20, 0.05),
        (1000.0, 50, 1, 5.0),
    ],
)
def test_a_node_looks_twenty_times_in_a_round_of_the_fastest(
    elapsed: float, steps: int, advanced: int, seconds: float
) -> None:
    assert poll_seconds_after(elapsed, steps, sync_every=50, advanced=advanced) == seconds


def test_misuse_is_told() -> None:
    one = session(small(), MemoryStore(), "node-0")
    with pytest.raises(RuntimeError, match="entered with `with`"):
        one.step(samples=1)
    with pytest.raises(ValueError, match="samples is 0"):
        one.step(samples=0)
    with one, pytest.raises(RuntimeError, match="entered once"):
        one.__enter__()
    with pytest.raises(ValueError, match="learner_id is 'a/b': expected a name without '/'"):
        session(small(), MemoryStore(), "a/b")
