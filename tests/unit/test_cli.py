"""What the command line answers to errors that a user can act on."""

import sys

import pytest

from gradientmail.cli import explained, unwrapped
from gradientmail.exits import Exit


def test_a_missing_torch_is_told_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        __import__("torch")
    sentence = (
        "this needs torch, which is not installed: run `pip install './trainer[torch]'` in GradientMail's repository"
    )
    assert explained(missing.value) == (sentence, Exit.CONFIGURATION)


def test_another_missing_module_is_a_fault_of_the_program() -> None:
    assert explained(ModuleNotFoundError("No module named 'botocore'", name="botocore")) is None


def test_help_has_a_line_for_each_paragraph() -> None:
    assert unwrapped("One.\n\nTwo is\nlonger.\nThree.") == "One.\n\nTwo is longer. Three."
