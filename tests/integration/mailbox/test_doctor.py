"""`gradientmail doctor URL` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mypy_boto3_s3 import S3Client

from gradientmail import cli
from gradientmail.commands.doctor import exit_code
from gradientmail.mailbox import Store
from gradientmail.mailbox.probe import examine
from tests.integration.mailbox.proxy import Exchange, ProxyServer, ignore_condition, refuse
from tests.integration.mailbox.test_s3_places import closed_port

__all__ = ["closed_port"]

ALL_CHECKS = [
    "may list",
    "may create",
    "may read",
    "may delete",
    "a key is created once",
    "a race has one winner",
    "losers read the winner's bytes",
    "a written object is read at once",
    "a written object is listed at once",
    "a deleted object is gone at once",
    "listings are in byte order",
    "listings start after a key",
    "listings keep to a prefix",
    "byte order beyond ASCII",
    "clocks agree",
]
FEW = ("--keys", "3", "--racers", "3")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    monkeypatch.setattr(cli, "COMMANDS", ("doctor", "doctor"))
    monkeypatch.setenv("COLUMNS", "200")
    return Doctor(monkeypatch, capsys)


class Doctor:
    """Runs the command in this process; gives (exit code, standard output, standard error)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["gradientmail", "doctor", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = self.capsys.readouterr()
        return int(left.value.code or 0), out, err


def objects(client: S3Client, bucket: str) -> list[str]:
    return [item.get("Key", "") for item in client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_a_folder_is_suitable_and_left_as_it_was(doctor: Doctor, tmp_path: Path) -> None:
    code, out, _ = doctor(f"file://{tmp_path}/not/yet", *FEW)
    assert code == 0
    assert [name for name in ALL_CHECKS if name not in out] == []
    assert f"file://{tmp_path}/not/yet may hold a shared queue." in out
    assert list(tmp_path.iterdir()) == []


def test_an_s3_store_is_suitable_and_left_empty(
    doctor: Doctor, s3_server: str, bucket: str, s3_client: S3Client
) -> None:
    code, out, _ = doctor(f"s3://{bucket}/runs", "--endpoint-url", s3_server, "--json", *FEW)
    report = json.loads(out)
    assert code == 0
    assert report["suitable"] is True
    assert [(check["name"], check["result"]) for check in report["checks"]] == [(name, "passed") for name in ALL_CHECKS]
    assert [row["operation"] for row in report["latencies"]] == ["put_if_absent", "get", "list", "delete"]
    assert objects(s3_client, bucket) == []


def test_a_store_that_ignores_the_condition_is_unusable(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", ignore_condition, count=None)
    report = examine(proxied, keys=3, racers=3, processes=1)
    assert exit_code(report) == 4
    details = {check.name: check.detail for check in report.checks if check.result == "failed"}
    assert details["a key is created once"].endswith("the store ignores the condition")
    assert details["a race has one winner"].startswith("several racers won 3 (race/000000, race/000001, race/000002)")


def test_conflicts_are_mentioned_and_no_fault(proxy: ProxyServer, proxied: Store) -> None:
    proxy.add("PUT", refuse(409, "ConditionalRequestConflict"), path="/race/", count=1)
    report = examine(proxied, keys=3, racers=3, processes=1)
    assert exit_code(report) == 0
    details = {check.name: check.detail for check in report.checks}
    assert details["a race has one winner"].endswith("; 409 answers: 1, all settled")


def test_a_store_without_conditional_writes_is_named_as_unusable(
    doctor: Doctor, proxy: ProxyServer, bucket: str
) -> None:
    proxy.add("PUT", refuse(501, "NotImplemented"), count=None)
    code, out, _ = doctor(f"s3://{bucket}/runs", "--endpoint-url", proxy.url, *FEW)
    assert code == 4
    assert "lacks conditional writes" in out
    assert f"s3://{bucket}/runs is unusable: it must not hold a shared queue." in out


def test_a_missing_permission_is_named(doctor: Doctor, proxy: ProxyServer, bucket: str) -> None:
    proxy.add("POST", refuse(403, "AccessDenied"), count=None)
    code, out, _ = doctor(f"s3://{bucket}/runs", "--endpoint-url", proxy.url, *FEW)
    assert code == 2
    assert "grant the permission s3:DeleteObject" in out
    assert f"s3://{bucket}/runs lacks permissions; grant them and check again." in out


def test_a_missing_bucket_is_one_sentence(doctor: Doctor, s3_server: str) -> None:
    assert doctor("s3://no-such-bucket/runs", "--endpoint-url", s3_server) == (
        2,
        "",
        f"gradientmail: bucket 'no-such-bucket' at {s3_server} does not exist; "
        "create it or correct the mailbox URL and endpoint\n",
    )


def test_missing_credentials_are_one_sentence(doctor: Doctor, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    code, out, err = doctor("s3://bucket/runs", "--endpoint-url", s3_server)
    assert (code, out) == (2, "")
    assert err.startswith("gradientmail: no usable credentials for bucket 'bucket' at ")
    assert err.count("\n") == 1


def test_an_endpoint_that_does_not_answer_is_one_sentence(doctor: Doctor, s3_server: str, closed_port: int) -> None:
    code, out, err = doctor("s3://bucket/runs", "--endpoint-url", f"http://127.0.0.1:{closed_port}")
    assert (code, out) == (3, "")
    assert err.endswith("check the endpoint or try again\n")
    assert err.count("\n") == 1


def test_a_url_that_is_none_is_one_sentence(doctor: Doctor) -> None:
    assert doctor("bucket/runs") == (
        2,
        "",
        "gradientmail: mailbox URL 'bucket/runs' is not understood: "
        "use s3://BUCKET/PREFIX, file:///FOLDER or memory:NAME\n",
    )


def test_ctrl_c_during_a_race_cleans_up(proxy: ProxyServer, bucket: str, s3_client: S3Client) -> None:
    racing, interrupted = threading.Event(), threading.Event()

    def answer_too_late(exchange: Exchange) -> None:
        racing.set()
        interrupted.wait(60)
        exchange.hang_up()

    proxy.add("PUT", answer_too_late, path="/race/000001", count=None)
    program = "from gradientmail import cli; cli.COMMANDS = ('doctor', 'doctor'); cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "doctor", f"s3://{bucket}/runs", "--endpoint-url", proxy.url, *FEW],
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    assert racing.wait(60)
    process.send_signal(signal.SIGINT)
    interrupted.set()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("gradientmail: interrupted; what the doctor wrote has been removed\n")
    assert objects(s3_client, bucket) == []
