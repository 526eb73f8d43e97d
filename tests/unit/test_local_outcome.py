import signal
from pathlib import Path

import pytest

from gradientmail.exits import Exit
from gradientmail.local.outcome import End, end_of, exit_code, failures, hopeless
from gradientmail.local.watching import NodeView
from gradientmail.progress import NodeProgress

VIEW = NodeView("a-0", "a-0-0000aa", last_words=("Traceback", "gradientmail: training needs torch", ""))


def ends(*codes: int) -> list[End]:
    return [End(f"a-{index}", f"a-{index}-x", code, "why") for index, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "missing", "stopped_by", "exit"),
    [
        ((0, 0), 0, None, Exit.OK),
        ((0, -9), 3, None, Exit.INCOMPLETE),
        ((0, -9), 0, None, Exit.OK),
        ((0, 1), 3, None, Exit.INCOMPLETE),
        ((1, 1), 3, None, Exit.FAILED),
        ((3, 3), 3, None, Exit.STORE),
        ((2, 2), 3, None, Exit.CONFIGURATION),
        ((1, 3), 3, None, Exit.INCOMPLETE),
        ((-9, -9), 3, None, Exit.INCOMPLETE),
        ((143, 143), 3, signal.SIGINT, Exit.INTERRUPTED),
        ((143, -9), 3, signal.SIGTERM, Exit.TERMINATED),
        ((143, 143), 3, signal.SIGHUP, Exit.TERMINATED),
        ((0, 0), 0, signal.SIGINT, Exit.INTERRUPTED),
    ],
)
def test_exit_codes(codes: tuple[int, ...], missing: int, stopped_by: signal.Signals | None, exit: Exit) -> None:
    assert exit_code(ends(*codes), missing=missing, stopped_by=stopped_by) is exit


@pytest.mark.parametrize(
    ("code", "word"), [(0, "finished"), (143, "stopped"), (130, "stopped"), (1, "failed"), (-9, "killed")]
)
def test_one_word_for_each_end(code: int, word: str) -> None:
    assert ends(code)[0].word == word


def test_a_node_says_itself_why_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "a-0.json"
    path.write_text(NodeProgress("a-0-0000aa", "a-0", message="ValueError: boom").to_json())
    assert end_of(VIEW, 1, path).message == "ValueError: boom"
    assert end_of(VIEW, 0, path).message == ""


def test_the_last_word_of_an_earlier_process_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    path = tmp_path / "a-0.json"
    path.write_text(NodeProgress("a-0-earlier", "a-0", message="ValueError: boom").to_json())
    assert end_of(VIEW, 2, path).message == "training needs torch"


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (2, ("x", "gradientmail: bad", "y"), "bad"),
        (1, ("x", "MemoryError", " "), "MemoryError"),
        (1, (), "ended with exit code 1"),
        (-9, ("gradientmail: bad",), "killed by SIGKILL"),
        (-200, (), "killed by signal 200"),
    ],
)
def test_who_could_not_say_it_is_judged_by_output_and_code(
    code: int, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert end_of(NodeView("a-0", "a-0-x", last_words=words), code, tmp_path / "missing").message == message


def test_a_configuration_error_before_any_unit_is_everyones() -> None:
    failed = ends(143, 2)
    assert hopeless(failed, consumed=0) == failed[1]
    assert hopeless(failed, consumed=1) is None
    assert hopeless(ends(1, 3, 0), consumed=0) is None


def test_each_failure_is_told_once() -> None:
    assert failures(ends(1, 0, 1, 143)) == [(["a-0", "a-2"], "why")]
