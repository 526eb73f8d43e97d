"""`gradientmail local` with the real trainer: two nodes, 24 units of one batch."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.local_runs import MANIFEST, Folder, children_of, ended, runs, until

pytestmark = pytest.mark.timeout(300)


def opened(folder: Folder) -> None:
    (folder.path / "gate").touch()


def test_a_run_ends_well_and_its_folder_tells_all_of_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    done = ended(folder.start("local", "run.yaml", "--out", "out", "--json"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["exit"] == "OK"
    assert [end["ended"] for end in record["ends"]] == ["finished", "finished"]
    assert sum(node["units"] for node in record["report"]["nodes"]) == 24
    assert record["ends"][0]["first_held_out_loss"] == 1.0
    assert json.loads((folder.out / "report.json").read_text()) == record["report"]
    for name in ("report.html", "timeline.png", "timeline.svg", "manifest.yaml", "nodes/a-0.log", "nodes/b-0.json"):
        assert (folder.out / name).stat().st_size > 0
    assert "tiny: 2 nodes, folder out" in done.stderr

    status = folder.run("status", "out", "--json")
    assert status.returncode == 0, status.stderr
    told = json.loads(status.stdout)
    assert (told["standing"], told["consumed"], told["lost"], told["foreign_objects"]) == ("complete", 24, 0, 0)

    report = folder.run("report", "out")
    assert report.returncode == 0, report.stderr
    assert "24 of 24 units trained, 0 lost" in report.stdout

    again = ended(folder.local())
    assert again.returncode == 2
    assert again.stderr.count("holds the claims of another run") == 1

    joined = ended(folder.local("--join", "--plain"))
    assert joined.returncode == 0, joined.stderr
    assert "24 of 24 units trained" in joined.stdout


def test_a_killed_node_does_not_stop_the_other_and_its_units_are_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json")
    until(folder.both_hold, process)
    killed = children_of(process.pid)["b-0"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{killed}").exists(), process)  # the command has taken note of its end
    opened(folder)
    done = ended(process)
    assert done.returncode == 5, done.stderr
    record = json.loads(done.stdout)
    assert [end["ended"] for end in record["ends"]] == ["finished", "killed"]
    assert record["ends"][1]["message"] == "killed by SIGKILL"
    lost = record["report"]["lost"]
    assert lost
    assert set(lost.values()) == {"b-0"}
    assert record["report"]["consumed_units"] == 24 - len(lost)
    assert "b-0 has ended, the others go on: killed by SIGKILL" in done.stderr
    assert json.loads(folder.run("status", "out", "--json").stdout)["lost"] == len(lost)


def test_control_c_lets_the_nodes_leave_in_good_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json")
    until(lambda: folder.consumed() > 0 and folder.both_hold(), process)
    nodes = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    opened(folder)
    done = ended(process)
    assert done.returncode == 130, done.stderr
    record = json.loads(done.stdout)
    assert {end["ended"] for end in record["ends"]} <= {"stopped", "finished"}
    assert record["report"]["consumed_units"] == folder.consumed()
    assert done.stderr.count("asking the nodes to finish their batch and leave") == 1
    assert not any(map(runs, nodes.values()))


def test_a_second_signal_kills_nodes_that_do_not_leave(tmp_path: Path) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json")
    until(lambda: folder.consumed() > 0 and folder.both_hold(), process)
    nodes = children_of(process.pid)
    for pid in nodes.values():
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    done = ended(process)
    assert done.returncode in (130, 143), done.stderr
    assert {end["ended"] for end in json.loads(done.stdout)["ends"]} == {"killed"}
    assert not any(map(runs, nodes.values()))


def test_nodes_leave_when_the_command_itself_is_killed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json")
    until(lambda: folder.consumed() > 0 and folder.both_hold(), process)
    nodes = children_of(process.pid)
    assert set(nodes) == {"a-0", "b-0"}
    process.kill()
    opened(folder)
    ended(process)
    until(lambda: not any(map(runs, nodes.values())))
    assert len(list((folder.out / "mailbox" / "left").iterdir())) == 2


def test_on_a_store_of_the_manifest_each_run_has_a_fresh_prefix_and_its_folder_leads_there(
    tmp_path: Path, s3_server: str, bucket: str
) -> None:
    folder = Folder(tmp_path)
    store = {"url": f"s3://{bucket}/runs", "endpointURL": s3_server}
    folder.write({**MANIFEST, "spec": {**MANIFEST["spec"], "mailbox": store}})
    done = ended(folder.local("--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mailbox"].startswith(f"s3://{bucket}/runs/default/tiny/")
    assert not (folder.out / "mailbox").exists()
    status = json.loads(folder.run("status", "out", "--json").stdout)
    assert (status["standing"], status["consumed"]) == ("complete", 24)


def test_a_task_that_raises_is_told_once_with_all_its_nodes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, fails_at=8)
    done = ended(folder.local())
    assert done.returncode == 1, done.stderr
    summary = done.stdout[done.stdout.rindex("tiny: ") :]
    assert summary.count("the disk of the corpus is gone") == 1
    assert "a-0, b-0: RuntimeError: the disk of the corpus is gone" in summary
    assert "Traceback" not in done.stdout + done.stderr
    assert "Traceback" in (folder.out / "nodes" / "a-0.log").read_text()


def test_a_configuration_error_is_told_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, no_such_argument=1)
    done = ended(folder.local())
    assert done.returncode == 2
    assert (done.stdout + done.stderr).count("no_such_argument") == 1
    assert done.stderr.startswith("gradientmail: task 'tiny:task' has no argument 'no_such_argument'")


def test_a_corrected_manifest_runs_in_the_same_folder_and_may_come_through_a_pipe(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({**MANIFEST, "spec": {**MANIFEST["spec"], "trainer": {"task": "tiny:tusk", "microBatch": 2}}})
    assert ended(folder.local()).returncode == 2
    os.mkfifo(tmp_path / "pipe")
    process = folder.start("local", "pipe", "--out", "out", "--no-picture")
    (tmp_path / "pipe").write_text(json.dumps(MANIFEST))
    done = ended(process)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder.out / "manifest.yaml").read_text()) == MANIFEST
    assert folder.consumed() == 24


def test_what_is_wrong_with_the_manifest_is_told_before_anything_is_made(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({**MANIFEST, "spec": {**MANIFEST["spec"], "nodes": []}})
    done = ended(folder.local())
    assert done.returncode == 2
    assert "spec.nodes" in done.stderr
    assert not folder.out.exists()
