"""Every mistake that a user can make, at the command line: one sentence on standard error, and its exit code."""

from __future__ import annotations

import copy
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from gradientmail import open_mailbox
from gradientmail.cli import main
from gradientmail.training.data.shards import header
from tests.integration.mailbox.proxy import faulty_proxy, refuse

MANIFEST: dict[str, Any] = {
    "apiVersion": "gradientmail.io/v1alpha1",
    "kind": "GradientRun",
    "metadata": {"name": "first"},
    "spec": {
        "data": {"steps": 6, "batch": 4, "lanes": 2, "unitSteps": 2},
        "trainer": {"task": "tests.integration.tiny_task:task", "microBatch": 2},
        "nodes": [{"name": "a"}],
    },
}
GPT = {"context": 4, "layers": 1, "heads": 1, "width": 4, "vocabulary": 257}

Command = Callable[..., tuple[int, str]]


def changed(*changes: tuple[str, object]) -> dict[str, Any]:
    """Return the manifest with fields of its spec set, each named by its path."""
    document = copy.deepcopy(MANIFEST)
    for path, value in changes:
        *parents, last = path.split(".")
        place = document["spec"]
        for parent in parents:
            place = place[parent]
        place[last] = value
    return document


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in an empty folder; return its exit code and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["gradientmail", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, capsys.readouterr().err

    return run


def train(command: Command, document: dict[str, Any], *options: str, mailbox: str = "") -> tuple[int, str]:
    """Run the manifest's first node."""
    Path("run.yaml").write_text(yaml.safe_dump(document))
    url = mailbox or (Path.cwd() / "box").as_uri()
    return command("train", "run.yaml", "--node", "a-0", "--learner-id", "l", "--mailbox", url, *options)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "spec: {data: [",
            "run.yaml:1:15: not valid YAML: expected the node content, but found '<stream end>'",
        ),
        (
            changed(("data.unit_steps", 2)),
            "run.yaml:11: spec.data.unit_steps is not a field: did you mean unitSteps?",
        ),
        (
            changed(("data.lanes", 3)),
            "run.yaml:8: spec.data.lanes: lanes is 3 and batch is 4: the lanes must divide the batch evenly",
        ),
        (
            changed(("trainer.microBatch", 3)),
            "run.yaml:14: spec.trainer.microBatch: microBatch is 3 and batch / lanes is 2: "
            "microBatch must divide it evenly, as 2 does",
        ),
        (
            changed(("nodes", [])),
            "run.yaml:11: spec.nodes is a list of 0 items: expected a list of 1 to 50 items",
        ),
    ],
)
def test_a_manifest_that_cannot_be_run(command: Command, text: str | dict[str, Any], sentence: str) -> None:
    Path("run.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    assert command("local", "run.yaml") == (2, f"gradientmail: {sentence}\n")
    assert [path.name for path in Path.cwd().iterdir()] == ["run.yaml"]


def test_a_manifest_that_is_not_there(command: Command) -> None:
    sentence = "none.yaml: no such file: give the path of a GradientRun manifest"
    assert command("local", "none.yaml") == (2, f"gradientmail: {sentence}\n")


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (
            "nowhere:task",
            "task 'nowhere:task' cannot be imported: there is no module 'nowhere' in {here} or among the installed "
            "packages; start in the folder that holds it, or install it",
        ),
        (
            "lacking_task:task",
            "task 'lacking_task:task' lacks a part: missing 3 required keyword-only arguments: "
            "'schedule', 'sequences', and 'context'",
        ),
    ],
)
def test_a_task_that_cannot_be_built(command: Command, task: str, sentence: str) -> None:
    Path("lacking_task.py").write_text(
        "from gradientmail.training.task import Task\ndef task(setting):\n    return Task(model=None, optimizer=None)\n"
    )
    told = sentence.format(here=Path.cwd())
    assert train(command, changed(("trainer.task", task))) == (2, f"gradientmail: {told}\n")


def test_a_corpus_that_is_not_there(command: Command) -> None:
    document = changed(
        ("trainer.task", "gradientmail.training.tasks.gpt:task"), ("trainer.args", {"train": "none.bin"})
    )
    sentence = "token file 'none.bin' does not exist: check the path in the task's arguments"
    assert train(command, document) == (2, f"gradientmail: {sentence}\n")


def test_a_corpus_that_is_too_short_says_how_many_steps_it_serves(command: Command) -> None:
    Path("short.bin").write_bytes(header(65) + bytes(2 * 65))
    arguments = {**GPT, "train": "short.bin"}
    document = changed(("trainer.task", "gradientmail.training.tasks.gpt:task"), ("trainer.args", arguments))
    sentence = (
        "the task's dataset has 16 sequences of 4 tokens, enough for 4 steps of 4 sequences, "
        "but the run needs 6 steps: set spec.data.steps to 4 or less, or give more data"
    )
    assert train(command, document) == (2, f"gradientmail: {sentence}\n")


def test_a_bucket_that_does_not_exist(command: Command, s3_server: str) -> None:
    document = changed(("mailbox", {"url": "s3://no-such-bucket-here/runs", "endpointURL": s3_server}))
    sentence = (
        f"bucket 'no-such-bucket-here' at {s3_server} does not exist; create it or correct the mailbox URL and endpoint"
    )
    assert train(command, document, mailbox="s3://no-such-bucket-here/runs") == (2, f"gradientmail: {sentence}\n")


def test_credentials_that_are_wrong(command: Command, s3_server: str, bucket: str) -> None:
    with faulty_proxy(s3_server) as proxy:
        proxy.add("GET", refuse(403, "SignatureDoesNotMatch"), count=None)
        document = changed(("mailbox", {"url": f"s3://{bucket}/runs", "endpointURL": proxy.url}))
        code, told = train(command, document, mailbox=f"s3://{bucket}/runs")
        place = f"bucket {bucket!r} at {proxy.url}"
    advice = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the profile or the pod's role"
    sentence = f"{place} found that the secret key does not match the access key; {advice}"
    assert (code, told) == (2, f"gradientmail: {sentence}\n")


def test_an_endpoint_that_does_not_answer(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    document = changed(("mailbox", {"url": "s3://bucket/runs", "endpointURL": endpoint}))
    code, told = train(command, document, mailbox="s3://bucket/runs")
    assert code == 3
    assert told.startswith(f"gradientmail: bucket 'bucket' at {endpoint} did not answer get ")
    assert told.endswith("; check the endpoint or try again\n")
    assert told.count("\n") == 1


def test_a_prefix_that_holds_another_runs_claims(command: Command) -> None:
    url = (Path.cwd() / "box").as_uri()
    open_mailbox(url).put_if_absent("units/000000-0.json", b"another")
    sentence = f"mailbox {url!r} holds the claims of another run: use a fresh prefix, or --join to take part in it"
    assert train(command, MANIFEST) == (2, f"gradientmail: {sentence}\n")


def test_a_disk_that_is_full(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, told = train(command, MANIFEST)
    assert code == 3
    assert told.startswith(f"gradientmail: cannot write {Path.cwd()}/box/")
    assert told.endswith(": no space is left on the disk; free some and try again\n")


def test_a_metrics_port_that_is_taken(command: Command) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        code, told = train(command, MANIFEST, "--metrics-port", str(port))
    sentence = f"metrics port {port} is taken by another process: choose another with --metrics-port, or 0 for any"
    assert (code, told) == (2, f"gradientmail: {sentence}\n")
