"""From the manifest's task to a Task; what is wrong is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
from pydantic import Field
from torch import nn

from gradientmail.training.loading import build_task, checked_arguments, find_builder
from gradientmail.training.task import Setting, Task, TaskError, check_available

SETTING = Setting(device=torch.device("cpu"))


def make(setting: Setting, *, available: int | None = None, **changes: Any) -> Task:
    model = nn.Linear(2, 1)
    parts: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "schedule": float,
        "sequences": lambda start, count: torch.zeros(count, 3),
        "context": 2,
        "available": available,
    }
    return Task(**{**parts, **changes})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, from which modules are imported; they are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


MODULE = """
from tests.unit.training.test_loading import make

def task(setting, *, width: int = 1, depth: int = 1):
    return make(setting)

def half(setting):
    from gradientmail.training.task import Task
    return Task(model=1, optimizer=2, context=3)

def wrong(setting):
    return {}

number = 3
"""


def test_module_of_the_current_folder(folder: Path) -> None:
    (folder / "mine_ok.py").write_text(MODULE)
    assert isinstance(build_task("mine_ok:task", {"width": 3}, SETTING), Task)


def test_own_code_that_raises_keeps_its_traceback(folder: Path) -> None:
    (folder / "mine_raises.py").write_text("def task(setting):\n    return {}['key']\n")
    with pytest.raises(KeyError, match="key"):
        build_task("mine_raises:task", {}, SETTING)


@pytest.mark.parametrize(
    ("task", "arguments", "sentence"),
    [
        (
            "nowhere.tasks:task",
            {},
            "task 'nowhere.tasks:task' cannot be imported: there is no module 'nowhere' in {here} or among the "
            "installed packages; start in the folder that holds it, or install it",
        ),
        (
            "mine:taks",
            {},
            "task 'mine:taks': module 'mine' has no 'taks': did you mean 'task'?",
        ),
        (
            "mine:number",
            {},
            "task 'mine:number' names something of type int, which cannot be called: "
            "name a function that returns a Task",
        ),
        ("mine:task", {"widht": 3}, "task 'mine:task' has no argument 'widht': did you mean 'width'?"),
        ("mine:task", {"zzz": 3}, "task 'mine:task' has no argument 'zzz': it has 'depth', 'width'"),
        (
            "mine:task",
            {"width": "wide"},
            "task 'mine:task': argument width is 'wide', but input should be a valid integer, "
            "unable to parse string as an integer",
        ),
        (
            "mine:half",
            {},
            "task 'mine:half' lacks a part: missing 2 required keyword-only arguments: 'schedule' and 'sequences'",
        ),
        ("mine:wrong", {}, "task 'mine:wrong' returned a dict, but a gradientmail Task is expected"),
        (
            "needs_other:task",
            {},
            "task 'needs_other:task' cannot be imported: ModuleNotFoundError: No module named 'other_thing' at "
            "{here}/needs_other.py:1",
        ),
        (
            "bad_syntax:task",
            {},
            "task 'bad_syntax:task' cannot be imported: SyntaxError: '(' was never closed (bad_syntax.py, line 1)",
        ),
    ],
)
def test_each_mistake_is_one_sentence(folder: Path, task: str, arguments: dict[str, Any], sentence: str) -> None:
    (folder / "mine.py").write_text(MODULE)
    (folder / "needs_other.py").write_text("import other_thing\n")
    (folder / "bad_syntax.py").write_text("def task(\n")
    with pytest.raises(TaskError) as error:
        build_task(task, arguments, SETTING)
    assert str(error.value) == sentence.format(here=folder)


def test_missing_argument_is_named() -> None:
    def builder(setting: Setting, *, train: str, held_out: str = "") -> None: ...

    with pytest.raises(TaskError) as error:
        checked_arguments("m:task", builder, {"held_out": "x"})
    assert str(error.value) == "task 'm:task' needs 'train': set it under spec.trainer.args"


def test_values_are_converted_to_the_annotations() -> None:
    def builder(
        setting: Setting, *, rate: Annotated[float, Field(gt=0)], kind: Literal["a", "b"] = "a", plain: Any = None
    ) -> None: ...

    assert checked_arguments("m:task", builder, {"rate": 1, "plain": [1]}) == {"rate": 1.0, "plain": [1]}
    with pytest.raises(TaskError, match="argument rate is -1, but input should be greater than 0"):
        checked_arguments("m:task", builder, {"rate": -1})
    with pytest.raises(TaskError, match="argument kind is 'c', but input should be 'a' or 'b'"):
        checked_arguments("m:task", builder, {"rate": 1, "kind": "c"})


def test_a_callable_that_takes_anything_is_given_everything() -> None:
    def builder(setting: Setting, **rest: object) -> None: ...

    assert checked_arguments("m:task", builder, {"a": 1}) == {"a": 1}


def test_a_callable_without_a_setting_is_refused() -> None:
    def builder(*, width: int = 1) -> None: ...

    with pytest.raises(TaskError, match="takes no Setting"):
        checked_arguments("m:task", builder, {})


@pytest.mark.parametrize(
    ("part", "value", "sentence"),
    [
        ("model", None, "the task's model is 'None' (NoneType), but a torch.nn.Module is expected"),
        ("optimizer", "adam", "the task's optimizer is 'adam' (str), but a torch.optim.Optimizer is expected"),
        ("schedule", 0.1, "the task's schedule is '0.1' (float), but a callable is expected"),
        ("evaluate", 1, "the task's evaluate is '1' (int), but a callable is expected"),
        ("context", 0, "the task's context is 0: a sequence has at least 1 token"),
    ],
)
def test_a_part_of_the_wrong_kind_is_named(part: str, value: Any, sentence: str) -> None:
    with pytest.raises(TaskError) as error:
        make(SETTING, **{part: value})
    assert str(error.value) == sentence


def test_short_dataset_says_how_many_steps_it_serves() -> None:
    check_available(make(SETTING, available=80), steps=10, batch=8)
    check_available(make(SETTING), steps=10**9, batch=8)
    with pytest.raises(TaskError) as error:
        check_available(make(SETTING, available=79), steps=10, batch=8)
    assert str(error.value) == (
        "the task's dataset has 79 sequences of 2 tokens, enough for 9 steps of 8 sequences, but the run needs 10 "
        "steps: set spec.data.steps to 9 or less, or give more data"
    )


def test_built_in_task_is_found() -> None:
    assert callable(find_builder("gradientmail.training.tasks.gpt:task"))
