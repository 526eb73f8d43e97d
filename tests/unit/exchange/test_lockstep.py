"""Learners whose steps and requests follow each other as the test says: exact numbers and single events."""

from __future__ import annotations

import contextlib
import hashlib
import json

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from gradientmail.exchange.blobs import BlobStore
from gradientmail.exchange.driver import Driver
from gradientmail.exchange.joining import found_or_read, join
from gradientmail.exchange.keys import blob_key, contribution_key, version_key
from gradientmail.exchange.parameters import Parameters
from gradientmail.exchange.records import Agreement
from gradientmail.exchange.replica import Replica
from gradientmail.exchange.requests import Fetch
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.retrying import Patience
from tests.unit.exchange.doubles import Small
from tests.unit.exchange.lockstep import PATIENCE, Clock, Node, settle


class Vector(nn.Module):
    """Two parameters, so that there can be two fragments."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.b = nn.Parameter(torch.tensor([[0.25, 4.0]]))


def agreement(sync_every: int = 2, fragments: int = 1, transfer: str = "float32", **outer: float) -> Agreement:
    return Agreement(sync_every, fragments, outer.get("lr", 1.0), outer.get("mu", 0.0), transfer)


def nodes(count: int, options: Agreement) -> tuple[MemoryStore, Clock, list[Node]]:
    box, clock = MemoryStore(), Clock()
    return box, clock, [Node(f"node-{index}", Vector(), box, options, clock) for index in range(count)]


def descend(model: nn.Module, target: float, rate: float) -> None:
    """One step towards a target of the node's own: each node's loss is 0.5 |theta - target|^2."""
    for parameter in model.parameters():
        parameter.sub_(rate * (parameter - target))


def add(model: nn.Module, value: float) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(value)


def nothing(_: nn.Module) -> None:
    pass


def diloco(targets: list[float], samples: list[int], rounds: int, inner: int, lr: float, mu: float) -> list[Tensor]:
    """Synchronous DiLoCo in float64 with 400 steps of momentum warm-up, written apart from the product."""
    least = 1 - sum((count / sum(samples)) * (count / max(samples)) for count in samples)
    theta = [torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), torch.tensor([[0.25, 4.0]], dtype=torch.float64)]
    velocity = [torch.zeros_like(part) for part in theta]
    for done in range(rounds):
        momentum = min(mu, max(least, mu * done * inner / 400))
        replicas = [[part.clone() for part in theta] for _ in targets]
        for replica, target in zip(replicas, targets, strict=True):
            for _ in range(inner):
                for part in replica:
                    part -= 0.002 * (part - target)
        for index, part in enumerate(theta):
            gradient = sum(
                (count / sum(samples)) * (part - replica[index])
                for count, replica in zip(samples, replicas, strict=True)
            )
            assert isinstance(gradient, Tensor)
            velocity[index] = momentum * velocity[index] + gradient
            theta[index] = part - lr * (gradient + momentum * velocity[index])
    return theta


@pytest.mark.parametrize(("lr", "mu"), [(1.0, 0.0), (1.0, 0.5), (0.7, 0.9)])
@pytest.mark.parametrize("fragments", [1, 2])
def test_all_nodes_in_step_equal_synchronous_diloco(lr: float, mu: float, fragments: int) -> None:
    targets, samples, rounds, inner = [0.0, 1.0, -3.0], [5, 1, 2], 24, 20
    _, _, group = nodes(3, agreement(sync_every=inner, fragments=fragments, lr=lr, mu=mu))
    for node in group:
        for chain in node.learner.chains:
            chain.head_start = 0  # all fragments in step, as synchronous DiLoCo has them
    for _ in range(rounds):
        for _ in range(inner):
            for node, target, count in zip(group, targets, samples, strict=True):
                node.step(lambda model, target=target: descend(model, target, 0.002), samples=count)  # type: ignore[misc]
        settle(group)
    expected = diloco(targets, samples, rounds, inner, lr, mu)
    for node in group:
        assert node.versions == [rounds] * fragments
        for parameter, value in zip(node.model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.detach().double(), value, rtol=1e-5, atol=1e-5)


def test_one_node_alone_equals_the_closed_form() -> None:
    """Each step takes 0.25 off; a round of two has delta 0.5, and momentum grows by 0.9 * 2 / 400 a round."""
    _, _, (node,) = nodes(1, agreement(sync_every=2, lr=0.7, mu=0.9))
    expected = 1.0
    velocity = 0.0
    for done in range(5):
        node.step(lambda model: add(model, -0.25))
        node.step(lambda model: add(model, -0.25))
        settle([node])
        velocity = 0.0045 * done * velocity + 0.5
        expected -= 0.7 * (0.5 + 0.0045 * done * velocity)
    assert next(node.model.parameters())[0].item() == pytest.approx(expected, rel=1e-5)


def test_bfloat16_transfer_stays_within_its_rounding_and_loses_nothing() -> None:
    targets = [0.0, 1.0]
    ends = []
    for transfer in ("float32", "bfloat16"):
        _, _, group = nodes(2, agreement(sync_every=3, transfer=transfer, mu=0.5))
        for _ in range(30):
            for node, target in zip(group, targets, strict=True):
                node.step(lambda model, target=target: descend(model, target, 0.05))  # type: ignore[misc]
            settle(group)
        ends.append([parameter.detach().clone() for parameter in group[0].model.parameters()])
    for exact, rounded in zip(*ends, strict=True):
        torch.testing.assert_close(rounded, exact, rtol=2**-7, atol=2**-7)


def test_replicas_hold_the_same_version_bit_for_bit_whichever_way_they_got_it() -> None:
    """The closer computed it, the second added rounded steps, the third skipped versions, the fourth joined late."""
    box, clock, group = nodes(3, agreement(sync_every=1, transfer="bfloat16", mu=0.5))
    for turn in range(7):
        for node in group[:2]:
            node.step(lambda model, turn=turn: descend(model, 0.3 * turn, 0.1))  # type: ignore[misc]
        overdue(clock, group[:2])
    group[2].talk()
    group[2].adopt()
    late = Node("late", Vector(), box, group[0].agreement, clock)
    anchors = [node.replica.anchors[0] for node in (*group, late)]
    assert [node.versions for node in (*group, late)] == [[7]] * 4
    assert group[2].adopted[0].adoption.skipped == 6
    assert all(torch.equal(anchor, anchors[0]) for anchor in anchors)


def test_a_late_contribution_stays_with_its_node_and_goes_out_at_its_next_step() -> None:
    _, clock, (fast, slow) = nodes(2, agreement(sync_every=4))
    for _ in range(4):
        fast.step(nothing)
    fast.talk()
    assert fast.versions == [0], "the round waits for the other node"
    slow.talk()
    slow.step(lambda model: add(model, 8.0))
    clock.now += PATIENCE
    settle([fast])
    assert fast.versions == [1], "but not for ever"
    slow.talk()
    slow.step(nothing)
    assert next(slow.model.parameters())[0].item() == 9.0, "what is not merged is kept"
    fast.step(nothing)
    slow.talk()
    fast.talk()
    fast.step(nothing)
    settle([fast, slow])
    assert fast.versions == [2], "the late node has opened the next round itself"
    assert fast.merged_steps == fast.learner.work.steps + slow.learner.work.steps == 8


def test_nothing_is_offered_to_a_round_that_has_been_closed_meanwhile() -> None:
    box, clock, (fast, slow) = nodes(2, agreement(sync_every=1))
    slow.step(nothing)  # copies its parameters for version 1
    fast.step(nothing)
    fast.talk()
    clock.now += 2 * PATIENCE
    settle([fast])
    assert fast.versions == [1]
    for _ in range(3):
        slow.talk()  # has version 1 ready, but its training thread is in a long step
    assert slow.versions == [0]
    assert [key for key in box.list("exchange/rounds/") if key.endswith("/contributions/node-1")] == []
    slow.step(nothing)
    slow.talk()
    assert [key for key in box.list("exchange/rounds/") if key.endswith("/contributions/node-1")] == [
        "exchange/rounds/0000/0000000002/contributions/node-1"
    ]


def test_a_slow_node_contributes_one_step_to_each_round_of_a_fast_one() -> None:
    """Ten times slower: the fast node opens every round, and nobody waits for longer than a step of the slow one."""
    _, _, (fast, slow) = nodes(2, agreement(sync_every=5))
    for turn in range(1, 101):
        fast.step(nothing)
        fast.talk()
        if turn % 10 == 0:
            slow.talk()
            slow.step(nothing)
            slow.talk()
    assert fast.versions == [9], "the tenth is ready for its next step"
    assert all(event.adoption.merged for event in slow.adopted)
    assert fast.learner.chains[0].anchor.shares["node-1"].steps == 9


def test_a_dead_node_is_waited_for_in_two_rounds_and_then_no_more() -> None:
    _, clock, (fast, dead) = nodes(2, agreement(sync_every=1))
    for node in (fast, dead):
        node.step(nothing)
    settle([fast, dead])
    assert fast.versions == [1]
    waits = 0
    for _ in range(6):
        fast.step(nothing)
        settle([fast])
        if fast.learner.chains[0].taken is not None:
            waits += 1
            clock.now += PATIENCE
            settle([fast])
    assert (waits, fast.versions) == (2, [7])


def test_a_node_that_leaves_is_not_waited_for() -> None:
    _, _, (first, second) = nodes(2, agreement(sync_every=1))
    assert second.driver.hold(second.learner.part()) is False
    first.step(nothing)
    settle([first])
    assert first.versions == [1]
    assert first.driver.hold(first.learner.part()) is True


def test_a_round_of_what_is_left_over_by_a_node_that_leaves_moves_without_momentum() -> None:
    _, _, (node,) = nodes(1, agreement(sync_every=1, mu=0.8))
    moved = []
    for leaving in (False, False, True):
        before = node.replica.anchors[0].clone()
        node.step(lambda model: add(model, 1.0))
        node.learner.leaving = leaving
        settle([node])
        moved += (node.replica.anchors[0] - before).tolist()
    assert node.versions == [3]
    # A gradient of 1 moves by 1 without momentum at first, by 1 + 0.002 m with m = 1.002 in the next round,
    # and in the third by itself again.
    assert moved == pytest.approx([value for value in (1.0, 1.002004, 1.0) for _ in before], abs=2e-6)


def test_exactly_the_newest_versions_are_kept() -> None:
    """The closer of version 8 has seen 7, and deletes 4 and older: so 5 to 8 are left, with their blobs."""
    box, _, (node,) = nodes(1, agreement(sync_every=1, mu=0.5))
    for _ in range(8):
        node.step(nothing)
        settle([node])
    kept = [key.split("/")[3] for key in box.list("exchange/rounds/") if key.endswith("/version")]
    assert kept == ["0000000005", "0000000006", "0000000007", "0000000008"]
    assert sorted({key.split("/")[3] for key in box.list("exchange/blobs/")}) == kept


@pytest.mark.parametrize("survivor", [0, 1])
def test_a_closer_that_died_is_replaced_by_the_next_in_turn(survivor: int) -> None:
    _, clock, group = nodes(2, agreement(sync_every=1))
    for node in group:
        node.step(nothing)
        node.driver.hold(node.learner.tick())  # contributes, and looks no further
    clock.now += 2 * PATIENCE
    settle([group[survivor]])
    assert group[survivor].versions == [1]
    assert group[survivor].merged_steps == 2


def overdue(clock: Clock, group: list[Node]) -> None:
    """Let rounds open, all patience run out, and the rounds be closed."""
    settle(group)
    clock.now += 3 * PATIENCE
    settle(group)


def damaged(box: MemoryStore, key: str, data: bytes) -> None:
    box.delete([key])
    box.put_if_absent(key, data)


@pytest.mark.parametrize(
    "how", ["truncated", "other bytes", "gone", "foreign shape", "not finite", "bad record", "other's record"]
)
def test_an_unusable_contribution_is_refused_by_name_and_the_rest_is_merged(how: str) -> None:
    box, clock, (good, bad) = nodes(2, agreement(sync_every=1))
    good.step(lambda model: add(model, 1.0))
    bad.step(lambda model: add(model, 2.0))
    bad.driver.hold(bad.learner.tick())
    record_key = contribution_key(0, 1, "node-1")
    record = json.loads(box.get(record_key) or b"")
    key = blob_key(0, 1, record["delta"])
    data = box.get(key) or b""
    match how:
        case "truncated":
            damaged(box, key, data[:-8])
        case "other bytes":
            damaged(box, key, data[:-4] + b"\0\0\x80\x3f")
        case "gone":
            box.delete([key])
        case "foreign shape" | "not finite":
            value = torch.zeros(7) if how == "foreign shape" else torch.full((3,), float("inf"))
            foreign = save({"a": value, "b": torch.zeros(1, 2)})
            digest = hashlib.sha256(foreign).hexdigest()
            box.put_if_absent(blob_key(0, 1, digest), foreign)
            damaged(box, record_key, json.dumps({**record, "delta": digest}).encode())
        case "bad record":
            damaged(box, record_key, b"{}")
        case _:
            damaged(box, record_key, json.dumps({**record, "learner": "node-0"}).encode())
    good.talk()
    overdue(clock, [good])
    assert good.versions == [1]
    version = good.learner.chains[0].anchor
    assert version.merged == ("node-0",)
    assert list(version.refused) == ["node-1"]
    assert good.refused == [record_key]
    settle([bad])
    assert next(bad.model.parameters())[0].item() == 4.0, "its own step, and the other node's"
    assert not bad.learner.chains[0].missed, "what was unusable does not hurry the next round"


def test_foreign_keys_are_left_alone_and_named_once() -> None:
    box, _, (node,) = nodes(1, agreement(sync_every=1))
    box.put_if_absent("exchange/rounds/0000/0000000001/notes", b"mine")
    for _ in range(3):
        node.step(nothing)
        settle([node])
    assert node.refused == ["exchange/rounds/0000/0000000001/notes"]
    assert node.versions == [3]


def test_a_version_record_that_is_damaged_stops_that_fragment_alone() -> None:
    box, _, (node,) = nodes(1, agreement(sync_every=1, fragments=2))
    box.put_if_absent(version_key(0, 1), b"not json")
    for _ in range(4):
        node.step(nothing)
        settle([node])
    assert node.versions == [0, 4]
    assert node.refused == [version_key(0, 1)]


@pytest.mark.parametrize("what", ["record", "blob"])
def test_a_node_that_joins_starts_from_the_newest_version_that_can_be_read(what: str) -> None:
    box, clock, (node,) = nodes(1, agreement(sync_every=1))
    for _ in range(3):
        node.step(lambda model: add(model, 1.0))
        settle([node])
    assert node.versions == [3]
    newest = f"exchange/rounds/0000/{3:010d}/version"
    key = newest if what == "record" else blob_key(0, 3, node.learner.chains[0].anchor.parameters)
    damaged(box, key, b"{}")
    late = Node("late", Vector(), box, node.agreement, clock)
    assert late.versions == [2]
    assert late.refused == [newest]
    late.step(nothing)
    settle([late])
    assert late.versions == [2], "nobody can go on from a version that it cannot read"
    node.step(nothing)
    overdue(clock, [node, late])
    assert node.versions == late.versions == [4]
    assert torch.equal(node.replica.anchors[0], late.replica.anchors[0])


def test_a_learner_that_slept_adopts_no_version_made_anew_after_its_deletion() -> None:
    """It had read which version was newest, and slept until that was deleted; another sleeper then made it anew."""
    box, clock, (fast, sleeper) = nodes(2, agreement(sync_every=1))
    fast.step(nothing)
    overdue(clock, [fast])
    conversation = sleeper.learner.tick()
    request = conversation.send(None)
    record = box.get(version_key(0, 1)) or b""
    phantom = json.dumps({**json.loads(record), "closer": "another"}).encode()
    blobs = {key: box.get(key) or b"" for key in box.list("exchange/blobs/0000/0000000001/")}
    while "version" not in getattr(request, "key", ""):
        request = conversation.send(sleeper.driver.answer(request))
    for _ in range(6):
        fast.step(lambda model: add(model, 1.0))
        overdue(clock, [fast])
    assert box.get(version_key(0, 1)) is None
    for key, data in blobs.items():
        box.put_if_absent(key, data)
    with pytest.raises(StopIteration):
        request = conversation.send(phantom)  # what reading that version would give now
        conversation.send(sleeper.driver.answer(request))
    sleeper.driver.hold(sleeper.learner.tick())
    sleeper.adopt()
    settle([sleeper])
    assert [event.adoption.version.closer for event in sleeper.adopted] == ["node-0"]
    assert sleeper.versions == fast.versions == [7]
    for mine, theirs in zip(sleeper.model.parameters(), fast.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_an_offer_is_withdrawn_while_a_newer_version_replaces_it() -> None:
    """A step in the middle of the download must not move the anchor from which the newer version is reckoned."""
    _, clock, (fast, slow) = nodes(2, agreement(sync_every=1))
    fast.step(lambda model: add(model, 1.0))
    overdue(clock, [fast])
    slow.talk()
    assert slow.learner.chains[0].offer is not None
    fast.step(lambda model: add(model, 1.0))
    overdue(clock, [fast])
    conversation = slow.learner.tick()
    request = conversation.send(None)
    while not isinstance(request, Fetch):
        request = conversation.send(slow.driver.answer(request))
    fetched = slow.driver.answer(request)
    slow.step(nothing)
    assert slow.adopted == []
    with pytest.raises(StopIteration):
        conversation.send(fetched)
    settle([slow])
    assert slow.versions == [2]
    assert next(slow.model.parameters()).tolist() == [3.0, 0.0, 2.5]


def test_a_node_that_joins_starts_over_if_its_versions_may_have_been_deleted_meanwhile() -> None:
    box, _, (node,) = nodes(1, agreement(sync_every=1))
    parameters = Parameters(Vector(), 1)
    replica = Replica("late", parameters, BlobStore(box, parameters.layout), node.agreement)
    driver = Driver(box, replica, Patience(0.0, lambda _: False), contextlib.nullcontext(), lambda *_: None)
    founding = driver.hold(found_or_read("late", node.agreement, parameters.layout))
    conversation = join("late", "a process", founding, RuntimeError)
    request = conversation.send(None)
    while not isinstance(request, Fetch):
        request = conversation.send(driver.answer(request))
    fetched = driver.answer(request)
    for _ in range(4):
        node.step(nothing)
        settle([node])
    request = conversation.send(fetched)
    with pytest.raises(StopIteration) as end:
        while True:
            request = conversation.send(driver.answer(request))
    assert [anchor.version for anchor in end.value.value] == [4]


def test_mixed_types_and_tied_parameters_follow_the_run() -> None:
    box, clock = MemoryStore(), Clock()
    options = agreement(sync_every=1, fragments=3)
    torch.manual_seed(0)
    group = [Node(f"node-{index}", Small(), box, options, clock) for index in range(2)]
    for _ in range(3):
        for node in group:
            node.step(lambda model: add(model, 0.5))
        settle(group)
    first, second = (dict(node.model.named_parameters()) for node in group)
    for name, parameter in first.items():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter, second[name])
            assert parameter.dtype == (torch.bfloat16 if "middle" in name else torch.float32)
