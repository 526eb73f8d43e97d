"""Whose run a prefix holds."""

from __future__ import annotations

from typing import Any

import pytest

from gradientmail.exits import PrefixInUse, UserError
from gradientmail.layout import RUN, beat_key
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.manifest import dump_manifest, parse_manifest, run_from_object
from gradientmail.run import GradientRun
from gradientmail.training.prefix import enter_prefix, refuse_used_learner


def run(name: str = "first", task: str = "m:task", replicas: int = 1, **data: Any) -> GradientRun:
    return run_from_object(
        {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": name},
            "spec": {
                "data": {"steps": 40, "batch": 32, "lanes": 4, **data},
                "trainer": {"task": task},
                "nodes": [{"name": "a", "replicas": replicas}],
            },
        }
    )


def test_first_node_writes_the_manifest() -> None:
    box = MemoryStore()
    enter_prefix(box, run(), where="box")
    written = box.get(RUN)
    assert written is not None
    assert parse_manifest(written.decode()) == run()


def test_fellow_nodes_take_part_also_with_other_replicas_and_after_claims() -> None:
    box = MemoryStore()
    enter_prefix(box, run(), where="box")
    box.put_if_absent("units/000000-0.json", b"other")
    enter_prefix(box, run(replicas=3), where="box")


@pytest.mark.parametrize(
    ("mine", "sentence"),
    [
        (
            run(steps=80),
            "mailbox 'box' holds another run: its data grid is 40 steps of 32 in 4 lanes, 20 steps a unit, this "
            "manifest's is 80 steps of 32 in 4 lanes, 20 steps a unit; use a fresh prefix, since the same identifiers "
            "mean other data there",
        ),
        (
            run(name="second"),
            "mailbox 'box' holds another run: its name is 'first', this manifest's is 'second'; "
            "use a fresh prefix, or --join to take part in it",
        ),
        (
            run(task="m:other"),
            "mailbox 'box' holds another run: its task is 'm:task', this manifest's is 'm:other'; "
            "use a fresh prefix, or --join to take part in it",
        ),
    ],
)
def test_another_run_is_refused(mine: GradientRun, sentence: str) -> None:
    box = MemoryStore()
    enter_prefix(box, run(), where="box")
    with pytest.raises(PrefixInUse) as error:
        enter_prefix(box, mine, where="box")
    assert str(error.value) == sentence


def test_join_takes_part_in_another_run_of_the_same_grid_alone() -> None:
    box = MemoryStore()
    enter_prefix(box, run(), where="box")
    enter_prefix(box, run(name="second", task="m:other"), where="box", join=True)
    with pytest.raises(PrefixInUse, match="use a fresh prefix"):
        enter_prefix(box, run(lanes=2), where="box", join=True)


def test_claims_without_a_manifest_are_anothers() -> None:
    box = MemoryStore()
    box.put_if_absent("units/000000-0.json", b"other")
    with pytest.raises(PrefixInUse) as error:
        enter_prefix(box, run(), where="box")
    assert str(error.value) == (
        "mailbox 'box' holds the claims of another run: use a fresh prefix, or --join to take part in it"
    )
    assert box.get(RUN) is None
    enter_prefix(box, run(), where="box", join=True)


def test_manifest_that_cannot_be_read_is_anothers() -> None:
    box = MemoryStore()
    box.put_if_absent(RUN, b"\xff")
    with pytest.raises(PrefixInUse, match=r"its run.json is not a GradientRun; use a fresh prefix"):
        enter_prefix(box, run(), where="box", join=True)


def test_manifest_written_between_the_two_looks_is_a_fellows() -> None:
    class Racing(MemoryStore):
        """A fellow node starts and claims right after this one has looked for the manifest."""

        raced = False

        def get(self, key: str) -> bytes | None:
            found = super().get(key)
            if not self.raced:
                self.raced = True
                self.put_if_absent(RUN, dump_manifest(run(), "json").encode())
                self.put_if_absent("units/000000-0.json", b"fellow")
            return found

    enter_prefix(Racing(), run(), where="box")


def test_used_learner_is_refused() -> None:
    box = MemoryStore()
    refuse_used_learner(box, "l")
    box.put_if_absent(beat_key("l", 0), b"process")
    with pytest.raises(UserError, match="learner ID 'l' has been used under this prefix by another process"):
        refuse_used_learner(box, "l")
