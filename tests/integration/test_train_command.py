"""`gradientmail train` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from gradientmail.mailbox import open_mailbox
from gradientmail.progress import NodeProgress
from tests.integration.local_runs import until

SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)

TASK = """
import os, time
from tests.integration import tiny_task

def task(setting, *, stuck: bool = False):
    print("printed by the task")
    def hook(step):
        if step == 2 and stuck:
            os.write(2, b"stuck\\n")
            time.sleep(1000)
    tiny_task.hook = hook
    return tiny_task.task(setting)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start nodes in a folder with a manifest and a task; end those that are left."""
    (tmp_path / "mine.py").write_text(TASK)
    started: list[subprocess.Popen[str]] = []

    def begin(
        *options: str,
        manifest: str = "run.yaml",
        node: str = "a-0",
        stuck: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        document = {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": "first"},
            "spec": {
                "data": {"steps": 6, "batch": 4, "lanes": 1, "unitSteps": 2},
                "trainer": {"task": "mine:task", "args": {"stuck": stuck}, "microBatch": 2},
                "nodes": [{"name": "a"}],
            },
        }
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
        process = subprocess.Popen(
            [sys.executable, "-m", "gradientmail", "train", manifest, *options],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "OMP_NUM_THREADS": "1",
                "GRADIENTMAIL_NODE": node,
                "GRADIENTMAIL_LEARNER": "l0",
                "GRADIENTMAIL_MAILBOX": f"file://{tmp_path}/box",
                "GRADIENTMAIL_TERMINATION_MESSAGE": str(tmp_path / "message"),
                **(environment or {}),
            },
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def message(folder: Path) -> NodeProgress:
    return NodeProgress.from_json((folder / "message").read_bytes())


def counted(said: NodeProgress) -> tuple[int, int]:
    return said.claimed, said.consumed


def test_the_command_line_is_there_without_torch() -> None:
    code = "import sys; from gradientmail.cli import application; application(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=SECONDS).returncode == 0


def test_json_lines_alone_are_on_standard_output(start: Start, tmp_path: Path) -> None:
    out, err = (process := start("--log-format", "json")).communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["progress"]["consumed"] == 3
    assert {(line["run"], line["node"]) for line in lines} == {("first", "a-0")}
    consumed = [(line["unit"], line["step"]) for line in lines if line["event"] == "unit-consumed"]
    assert [unit for unit, _ in consumed] == ["000000-0.json", "000001-0.json", "000002-0.json"]
    assert consumed[-1] == ("000002-0.json", 5)
    assert err == "printed by the task\n"
    assert message(tmp_path).phase == "finished"
    assert len(list(open_mailbox(f"file://{tmp_path}/box").list("consumed/"))) == 3


def test_nothing_secret_is_written(start: Start, tmp_path: Path, s3_server: str, bucket: str) -> None:
    secrets = {"AWS_ACCESS_KEY_ID": "AKIDLOOKFORME", "AWS_SECRET_ACCESS_KEY": "s3cr3t-look-for-me"}
    environment = {"AWS_ENDPOINT_URL": s3_server, "GRADIENTMAIL_MAILBOX": f"s3://{bucket}/runs/first"} | secrets
    good = start("--log-format", "json", environment=environment)
    said = [*good.communicate(timeout=SECONDS), (tmp_path / "message").read_text()]
    assert good.returncode == 0
    missing = {"GRADIENTMAIL_MAILBOX": "s3://no-such-bucket/runs/first"}
    bad = start("--log-format", "json", environment=environment | missing)
    said += [*bad.communicate(timeout=SECONDS), (tmp_path / "message").read_text()]
    assert bad.returncode == 2
    assert "no-such-bucket" in said[-1]
    assert [text for text in said if any(secret in text for secret in secrets.values())] == []


def test_second_signal_ends_a_node_that_is_stuck(start: Start, tmp_path: Path) -> None:
    process = start(stuck=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "stuck\n"
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 143
    assert message(tmp_path).phase == "stopped"
    assert message(tmp_path).message == "left at once after SIGTERM and a second signal; receipts may be missing"


def test_node_that_is_stuck_leaves_within_the_grace_time(start: Start, tmp_path: Path) -> None:
    process = start("--grace-seconds", "0.2", stuck=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "stuck\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    assert message(tmp_path).batches == 2


def test_termination_message_of_a_killed_node_counts_what_lies_in_the_mailbox(start: Start, tmp_path: Path) -> None:
    process = start(stuck=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "stuck\n"
    box = open_mailbox(f"file://{tmp_path}/box")
    # A receipt is written before it is counted, and the message, which is written in place, may be read half.
    until(lambda: counted(message(tmp_path)) == (3, 1), process, not_yet=(ValueError, FileNotFoundError))
    process.kill()
    assert process.wait(SECONDS) == -signal.SIGKILL
    said = message(tmp_path)
    assert said.phase == "training"
    assert counted(said) == (len(list(box.list("units/"))), len(list(box.list("consumed/")))) == (3, 1)


def test_taken_metrics_port_is_one_sentence(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--metrics-port", str(port))
        out, err = process.communicate(timeout=SECONDS)
    sentence = f"metrics port {port} is taken by another process: choose another with --metrics-port, or 0 for any"
    assert (process.returncode, out, err) == (2, "", f"gradientmail: {sentence}\n")
    assert message(tmp_path).message == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"manifest": "none.yaml"}, "none.yaml: no such file: give the path of a GradientRun manifest"),
        (
            {"node": "b-0"},
            "node 'b-0' is not of this run: nodes are named {pool}-{index}, and the pools are 'a'",
        ),
    ],
)
def test_mistake_is_one_sentence_before_torch_is_imported(
    start: Start, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    process = start(**options)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (2, "", f"gradientmail: {sentence}\n")
    assert (message(tmp_path).phase, message(tmp_path).message) == ("failed", sentence)
