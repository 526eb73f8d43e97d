"""Nodes' processes, with small programs in the place of the trainer."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gradientmail.local.children import Children
from gradientmail.local.plan import NodePlan
from tests.waiting import until

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def program(folder: Path, node: str, code: str) -> NodePlan:
    return NodePlan(
        node,
        f"{node}-x",
        (sys.executable, "-c", code),
        dict(os.environ),
        folder / f"{node}.log",
        folder / f"{node}.json",
    )


def read_all(children: Children) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []

    def ended() -> bool:
        lines.extend((line.node, line.text) for line in children.lines(0.01))
        return children.silent and not children.running

    until(ended)
    return lines


def first_line(children: Children) -> str:
    lines: list[str] = []

    def there() -> bool:
        lines.extend(line.text for line in children.lines(0.01))
        return bool(lines)

    until(there)
    return lines[0]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_output_and_errors_of_every_node_are_handed_on_and_logged(tmp_path: Path) -> None:
    talk = "import sys; print('out', flush=True); print('error', file=sys.stderr)"
    with Children([program(tmp_path, "a-0", talk), program(tmp_path, "b-0", talk)]) as children:
        lines = read_all(children)
        assert [child.code for child in children] == [0, 0]
    assert sorted(lines) == [("a-0", "error"), ("a-0", "out"), ("b-0", "error"), ("b-0", "out")]
    assert (tmp_path / "a-0.log").read_text() == "out\nerror\n"


def test_a_log_that_cannot_be_written_does_not_stop_the_node(tmp_path: Path) -> None:
    (tmp_path / "a-0.log").mkdir()
    with Children([program(tmp_path, "a-0", "print('out')")]) as children:
        assert read_all(children) == [("a-0", "out")]


def test_bytes_that_are_no_text_are_survived(tmp_path: Path) -> None:
    with Children(
        [program(tmp_path, "a-0", r"import sys; sys.stdout.buffer.write(b'\xff\n' + b'x' * 100_000)")]
    ) as children:
        lines = read_all(children)
    assert lines[0] == ("a-0", "\N{REPLACEMENT CHARACTER}")
    assert sum(len(text) for _, text in lines[1:]) == 100_000


@pytest.mark.parametrize(("handler", "code"), [("lambda *_: exit(0)", 0), ("signal.SIG_DFL", 143)])
def test_asking_to_leave_is_sigterm_and_a_node_that_does_not_hear_it_has_left(
    handler: str, code: int, tmp_path: Path
) -> None:
    wait = DEAF.replace("signal.SIG_IGN", handler)
    with Children([program(tmp_path, "a-0", wait)]) as children:
        assert first_line(children) == "up"
        children.ask_to_leave()
        read_all(children)
        assert [child.code for child in children] == [code]


def test_a_node_that_somebody_else_ends_by_sigterm_is_killed(tmp_path: Path) -> None:
    with Children([program(tmp_path, "a-0", DEAF.replace("signal.SIG_IGN", "signal.SIG_DFL"))]) as children:
        assert first_line(children) == "up"
        (child,) = children
        os.kill(child.pid, signal.SIGTERM)
        read_all(children)
        assert child.code == -signal.SIGTERM


def test_leaving_the_block_leaves_no_process_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the parent failed"), Children([program(tmp_path, "a-0", DEAF)]) as children:
        assert first_line(children) == "up"
        (pid,) = [child.pid for child in children]
        raise RuntimeError("the parent failed")
    assert not exists(pid)


def test_killing_ends_also_what_a_node_has_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with Children([program(tmp_path, "a-0", code)]) as children:
        grandchild = int(first_line(children))
        children.kill()
        read_all(children)
        assert [child.code for child in children] == [-signal.SIGKILL]
    until(lambda: not exists(grandchild) or _is_zombie(grandchild))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_node_that_floods_its_output_ends_with_the_block(tmp_path: Path) -> None:
    flood = "while True: print('x' * 1000)"
    with Children([program(tmp_path, "a-0", flood)]) as children:
        assert first_line(children) == "x" * 1000
        (pid,) = [child.pid for child in children]
    assert not exists(pid)


LEASHED = """
import signal, sys, time
from gradientmail.leash import hold_leash
signal.signal(signal.SIGTERM, {handler})
hold_leash()
print('up', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("handler", "seconds", "code"), [("lambda *_: sys.exit(143)", "60", 143), ("signal.SIG_IGN", "0.5", 1)]
)
def test_a_node_leaves_when_its_parent_is_gone_and_is_ended_if_it_does_not(
    handler: str, seconds: str, code: int, tmp_path: Path
) -> None:
    plan = program(tmp_path, "a-0", LEASHED.format(handler=handler))
    environment = {**os.environ, "GRADIENTMAIL_LEASH_SECONDS": seconds}
    plan = NodePlan(plan.node, plan.learner, plan.arguments, environment, plan.log, plan.termination_message)
    with Children([plan]) as children:
        assert first_line(children) == "up"
        (child,) = children
        assert child._process.stdin is not None
        child._process.stdin.close()
        read_all(children)
        assert child.code == code
