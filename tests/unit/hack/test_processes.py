"""Knowing a process again: by its start, not by its number alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hack.cluster.testcluster.errors import ClusterError
from hack.cluster.testcluster.processes import (
    Supervisor,
    identify,
    kill_marked,
    marked,
    parse_environment_end,
    parse_stat,
)

STAT = "4711 (a (strange) name) S 1 4711 4711 0 -1 4194304 9 0 0 0 7 2 0 0 20 0 1 0 987654 1 2 3"


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(tmp_path / "records", tmp_path / "logs")


def start(supervisor: Supervisor, *command: str, **environment: str) -> int:
    return supervisor.start("program", command, joins=(), environment={"PATH": os.environ["PATH"], **environment})


def test_state_and_start_are_found_behind_any_name() -> None:
    assert parse_stat(STAT) == ("S", 987654)


def test_this_process_has_an_identity_that_does_not_change() -> None:
    assert identify(os.getpid()) == identify(os.getpid())
    assert identify(os.getpid()) is not None


def test_a_program_runs_until_it_is_stopped(supervisor: Supervisor) -> None:
    pid = start(supervisor, "sleep", "60")
    assert supervisor.running("program") == pid
    assert start(supervisor, "sleep", "60") == pid
    supervisor.stop("program")
    assert supervisor.running("program") is None


def test_a_record_of_another_process_with_the_same_number_is_not_believed(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    start(supervisor, "sleep", "60")
    file = tmp_path / "records" / "program.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "started": record["started"] - 1}))
    assert supervisor.running("program") is None
    file.write_text(json.dumps({**record, "boot": "another"}))
    assert supervisor.running("program") is None
    file.write_text(json.dumps(record))
    supervisor.stop("program")


@pytest.mark.parametrize("text", ["", "{}", '{"pid": 1, "started": 2, "boot": "x", "more": 1}', "[]"])
def test_a_damaged_record_is_no_process(supervisor: Supervisor, tmp_path: Path, text: str) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "program.json").write_text(text)
    assert supervisor.running("program") is None


def test_the_end_of_a_program_is_told_with_its_last_words(supervisor: Supervisor) -> None:
    pid = start(supervisor, "sh", "-c", "echo the port is taken; sleep 60")
    log = supervisor.log("program")
    while "taken" not in log.read_text():
        supervisor.check("program")
    os.kill(pid, 9)
    supervisor.stop("program")
    with pytest.raises(ClusterError, match=r"program ended unexpectedly\. End of .*:\nthe port is taken$"):
        supervisor.check("program")


def test_the_end_of_the_environment_is_told_apart_from_none_yet() -> None:
    assert parse_environment_end(Path("/proc/self/stat").read_text()) > 0
    assert parse_environment_end("4711 (a (strange) name) R " + "0 " * 49) == 0


def test_a_process_is_found_from_the_moment_it_is_started(tmp_path: Path) -> None:
    mark = {"MARK_OF_TEST": str(tmp_path)}
    for _ in range(50):
        with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **mark}) as process:
            found = marked("MARK_OF_TEST", str(tmp_path))
            process.kill()
        assert found == {process.pid}


def test_marked_processes_are_found_and_killed_and_no_others(supervisor: Supervisor, tmp_path: Path) -> None:
    pid = start(supervisor, "sleep", "60", MARK_OF_TEST=str(tmp_path))
    assert marked("MARK_OF_TEST", str(tmp_path)) == {pid}
    kill_marked("MARK_OF_TEST", str(tmp_path) + "/other")
    assert supervisor.running("program") == pid
    kill_marked("MARK_OF_TEST", str(tmp_path))
    assert supervisor.running("program") is None


def test_logs_of_the_cluster_before_are_kept_once(supervisor: Supervisor, tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "etcd.log").write_text(text)
        supervisor.set_logs_aside()
    assert not (tmp_path / "logs").exists()
    assert (tmp_path / "logs.previous" / "etcd.log").read_text() == "second"
