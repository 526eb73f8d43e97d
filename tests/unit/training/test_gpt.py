"""The built-in task."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from gradientmail.training.data.errors import CorpusError
from gradientmail.training.decoder import Decoder, Shape
from gradientmail.training.loading import build_task
from gradientmail.training.loop import Rule, train_batch
from gradientmail.training.task import Setting, Task, TaskError
from gradientmail.training.tasks.gpt import build_model
from tests.unit.training.conftest import MakeShards

SETTING = Setting(device=torch.device("cpu"), seed=3, steps=100, batch=4, micro_batch=2)
SHAPE = Shape(vocabulary=257, context=32, layers=2, heads=2, width=32)
SMALL = {"vocabulary": 50, "context": 8, "layers": 2, "heads": 2, "width": 16}


def built(make_shards: MakeShards, **arguments: Any) -> Task:
    folder = str(make_shards(2000, 2000, below=50))
    return build_task("gradientmail.training.tasks.gpt:task", {"train": folder, **SMALL, **arguments}, SETTING)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("tied", [True, False])
def test_loss_before_training_is_that_of_guessing(positions: Any, tied: bool) -> None:
    model = build_model(replace(SHAPE, positions=positions, tied=tied), SETTING)
    tokens = torch.randint(0, 257, (8, 33), generator=torch.Generator().manual_seed(0))
    assert model(tokens[:, :-1], tokens[:, 1:]).item() == pytest.approx(math.log(257), abs=0.05)


def test_parameters_depend_on_shape_and_seed_alone() -> None:
    torch.manual_seed(1)
    first = build_model(SHAPE, SETTING)
    torch.manual_seed(2)
    second, other = build_model(SHAPE, SETTING), build_model(SHAPE, replace(SETTING, seed=4))
    for (name, one), two, three in zip(first.named_parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
        assert torch.equal(one, three) is (one.dim() < 2), name


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_a_token_does_not_see_those_after_it(positions: Any) -> None:
    model = build_model(replace(SHAPE, positions=positions), SETTING)
    tokens = torch.randint(0, 257, (1, 32), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 20:] = 7
    before, after = model.logits(tokens), model.logits(changed)
    assert torch.allclose(before[0, :20], after[0, :20], atol=1e-6)
    assert not torch.allclose(before[0, 20:], after[0, 20:], atol=1e-3)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_order_of_tokens_matters(positions: Any) -> None:
    model = build_model(replace(SHAPE, positions=positions), SETTING)
    scores = model.logits(torch.tensor([[5, 9, 7], [9, 5, 7]]))
    assert not torch.allclose(scores[0, 2], scores[1, 2], atol=1e-6)


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    rotation = Decoder(SHAPE).blocks[0].attention.rotation  # type: ignore[union-attr]
    features = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(0)).expand(1, 1, 32, 16)
    turned = rotation(features)  # type: ignore[operator]
    assert torch.allclose(turned.norm(dim=-1), features.norm(dim=-1), atol=1e-5)
    products = turned[0, 0] @ turned[0, 0].T
    assert products[3, 5].item() == pytest.approx(products[20, 22].item(), abs=1e-4)


def test_parameter_count() -> None:
    # 257 x 32 embedding (shared), per block 2 norms of 32 and 32 x (96 + 32 + 128 + 128), a last norm.
    assert sum(each.numel() for each in Decoder(SHAPE).parameters()) == 257 * 32 + 2 * (64 + 32 * 384) + 32


def test_decay_is_for_matrices_only(make_shards: MakeShards) -> None:
    groups = built(make_shards, weight_decay=0.3).optimizer.param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.3, 9), (0.0, 5)]


def test_schedule_by_default_rises_over_two_percent_and_falls_to_a_tenth(make_shards: MakeShards) -> None:
    schedule = built(make_shards, learning_rate=1e-3).schedule
    assert [schedule(step) for step in (0, 1, 2, 51, 100)] == pytest.approx([5e-4, 1e-3, 1e-3, 5.5e-4, 1e-4])


def test_training_lowers_the_loss_and_evaluation_sees_it(make_shards: MakeShards) -> None:
    folder = str(make_shards(2000, 2000, below=50))
    task = build_task(
        "gradientmail.training.tasks.gpt:task",
        {"train": folder, "held_out": f"{folder}/000001.bin", "held_out_sequences": 5, **SMALL},
        SETTING,
    )
    assert task.evaluate is not None
    assert task.evaluate(task.model) == pytest.approx(math.log(50), abs=0.05)
    for step in range(60):
        train_batch(task.sequences(4 * step, 4), task, Rule(SETTING.device, 2), learning_rate=3e-3)
    assert task.evaluate(task.model) < 3.0
    assert task.model.training


def test_evaluation_has_no_dropout_and_repeats(make_shards: MakeShards) -> None:
    folder = str(make_shards(500, below=50))
    arguments = {"train": folder, "held_out": folder, "dropout": 0.5, **SMALL}
    task = build_task("gradientmail.training.tasks.gpt:task", arguments, SETTING)
    assert task.evaluate is not None
    assert task.evaluate(task.model) == task.evaluate(task.model)


def test_sequences_are_in_the_seeds_order_unless_shuffle_is_false(make_shards: MakeShards) -> None:
    arguments = {"train": str(make_shards(4000, below=50)), **SMALL}

    def read(seed: int, **more: bool) -> list[list[int]]:
        task = build_task("gradientmail.training.tasks.gpt:task", {**arguments, **more}, replace(SETTING, seed=seed))
        rows: list[list[int]] = task.sequences(0, 499).tolist()
        return rows

    plain = read(3, shuffle=False)
    assert plain == read(4, shuffle=False)
    assert read(3) == read(3) != read(4)
    assert plain != read(3)
    assert sorted(plain) == sorted(read(3)) == sorted(read(4))


def test_corpus_parts(make_shards: MakeShards) -> None:
    task = built(make_shards)
    assert task.available == 3999 // 8
    assert task.context == 8
    assert task.evaluate is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"width": 18},
            "width is 18 and heads is 2: with rotary positions the width must be a multiple of 4, as 16 is",
        ),
        (
            {"width": 15, "positions": "learned"},
            "width is 15 and heads is 2: with learned positions the width must be a multiple of 2, as 14 is",
        ),
        (
            {"layers": 0},
            "task 'gradientmail.training.tasks.gpt:task': argument layers is 0, "
            "but input should be greater than or equal to 1",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(make_shards: MakeShards, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TaskError) as error:
        built(make_shards, **arguments)
    assert str(error.value) == sentence


def test_held_out_corpus_of_less_than_a_sequence_is_named(make_shards: MakeShards) -> None:
    folder = make_shards(2000, 8, below=50)
    with pytest.raises(
        CorpusError, match=r"held-out corpus '.*000001.bin' has 8 tokens, too few for one sequence of 8"
    ):
        build_task(
            "gradientmail.training.tasks.gpt:task",
            {"train": str(folder), "held_out": str(folder / "000001.bin"), **SMALL},
            SETTING,
        )
