"""Running other programs: a failure is one sentence with what the program said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hack.cluster.testcluster.errors import ClusterError
from hack.cluster.testcluster.shell import run, run_logged, shorten, succeeds, wait_until


def test_output_is_returned() -> None:
    assert run(["sh", "-c", "cat; echo done"], stdin="said ") == "said done\n"


def test_a_failure_tells_the_command_and_its_words() -> None:
    with pytest.raises(ClusterError) as failed:
        run(["sh", "-c", "echo the disk is full >&2; exit 3"])
    assert str(failed.value) == "`sh -c 'echo the disk is full >&2; exit 3'` failed (3): the disk is full"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ClusterError, match=r"^The program 'no-such-program' is missing; install it and try again\.$"):
        run(["no-such-program"])
    assert not succeeds(["no-such-program"])


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(ClusterError, match=r"^`sleep 60` did not end within 0\.1 s\.$"):
        run(["sleep", "60"], timeout_seconds=0.1)


def test_a_long_command_fails_with_the_end_of_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "build.log"
    with pytest.raises(
        ClusterError, match=r"(?s)^Building failed: .* returned 2\. End of .*build\.log:\nno such module$"
    ):
        run_logged("Building", ["sh", "-c", "echo no such module; exit 2"], log, timeout_seconds=10.0)
    assert capsys.readouterr().err == f"Building (log: {log})\n"


def test_a_wait_ends_with_what_was_awaited() -> None:
    with pytest.raises(ClusterError) as ended:
        wait_until(lambda: False, "the sun to rise", timeout_seconds=0.0, hint="It is night.")
    assert str(ended.value) == "Waited 0 s for the sun to rise. It is night."


def test_a_long_line_is_cut_to_one_row() -> None:
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 79 + "yz") == "x" * 79 + "…"
