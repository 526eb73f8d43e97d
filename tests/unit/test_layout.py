"""Keys of a run's objects, and which names can be part of them."""

from __future__ import annotations

import pytest

from gradientmail.layout import (
    beat_key,
    check_identifier,
    check_learner_id,
    claim_key,
    left_key,
    model_key,
    receipt_key,
)
from gradientmail.mailbox import InvalidKey

REFUSED = [("", "it is empty"), ("a/b", "it has a '/'"), ("a\nb", "it has a control character")]


def test_keys() -> None:
    assert claim_key("000000-0.json") == "units/000000-0.json"
    assert receipt_key("000000-0.json") == "consumed/000000-0.json"
    assert beat_key("a-0-x", 12) == "alive/a-0-x/0000000012"
    assert left_key("a-0-x") == "left/a-0-x"
    assert model_key("a-0-x") == "model/a-0-x.safetensors"


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_a_name_that_no_key_can_hold_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidKey) as identifier:
        check_identifier(name)
    with pytest.raises(InvalidKey) as learner:
        check_learner_id(name)
    assert str(identifier.value) == f"unit identifier {name!r} cannot be used: {reason}"
    assert str(learner.value) == f"learner ID {name!r} cannot be used: {reason}"


def test_other_names_are_taken() -> None:
    check_identifier("000000-0.json")
    check_learner_id("a100-0-x7f2")
