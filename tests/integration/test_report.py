"""`status` and `report` on stores: what is there, and one sentence for what is not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gradientmail.mailbox import Request, Store, open_mailbox
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.report import picture
from gradientmail.report.figures import figures
from gradientmail.report.opening import open_run
from gradientmail.runstate import read_run
from tests.integration.stored_runs import called, stored, stored_at_once
from tests.unit.report.simulated import state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}


@pytest.fixture(params=["memory", "file", "s3"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty mailbox of each kind."""
    if request.param == "s3":
        found: Store = request.getfixturevalue("s3_box")
        return found
    return open_mailbox(f"memory:{request.node.nodeid}" if request.param == "memory" else tmp_path.as_uri())


def test_a_run_is_read_back_from_any_store(box: Store) -> None:
    run = state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0))
    stored(box, run)
    read = read_run(box, clock=lambda: run.read_at)
    assert read == run
    assert figures(read) == figures(run)


def test_status_and_report_of_a_run_on_s3(s3_server: str, bucket: str, s3_box: Store, tmp_path: Path) -> None:
    stored(s3_box, state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0)))
    url = f"s3://{bucket}/runs/first"
    code, output = called("status", url, "--endpoint-url", s3_server, "--addressing", "path", "--json")
    assert code == 0, output
    record = json.loads(output)
    assert (record["standing"], record["consumed"], record["lost"], record["unclaimed"]) == ("ended", 22, 1, 1)
    code, output = called("report", url, "--endpoint-url", s3_server, "--out", str(tmp_path / "new"))
    assert code == 0, output
    assert "22 of 24 units trained, 1 lost" in output
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "report.html",
        "report.json",
        "timeline.png",
        "timeline.svg",
    }


def test_without_matplotlib_nothing_is_half_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(open_mailbox((tmp_path / "mailbox").as_uri()), state(PAGE, steps=6, unit_steps=1))
    monkeypatch.setattr(picture, "find_spec", lambda _: None)
    code, output = called("report", str(tmp_path))
    assert (code, output.count("give --no-picture")) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mailbox"]
    code, output = called("report", str(tmp_path), "--no-picture")
    assert code == 0, output
    assert {path.name for path in tmp_path.iterdir()} == {"mailbox", "report.html", "report.json"}


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_time_that_is_no_number_is_refused(command: str, tmp_path: Path) -> None:
    code, output = called(command, str(tmp_path), "--silent-after", "nan")
    assert (code, "nan is not a number from 0 to 1e+09" in output) == (2, True)


def test_a_run_that_is_still_going_can_be_reported(tmp_path: Path) -> None:
    run = state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0))
    stored(open_mailbox(tmp_path.as_uri()), run)
    code, output = called("report", str(tmp_path), "--out", str(tmp_path / "out"), "--silent-after", "1e9", "--json")
    assert code == 0, output
    assert json.loads((tmp_path / "out" / "report.json").read_text())["lost_units"] == 0


def test_a_folder_of_many_units_is_listed_in_one_go(tmp_path: Path) -> None:
    run = state(PAGE, steps=600, unit_steps=1)
    stored_at_once(tmp_path, run)
    box = open_run(str(tmp_path))
    requests: list[Request] = []
    box.observe = requests.append
    assert len(read_run(box).consumed) == 2400
    assert sorted(request.keys for request in requests if request.operation == "list") == [4, 4, 2400, 2400]


def test_every_receipt_is_read_once_and_the_reader_hears_how_far_that_is(tmp_path: Path) -> None:
    box = MemoryStore()
    stored(box, state(PAGE, steps=600, unit_steps=1))
    requests: Counter[str] = Counter()
    box.observe = lambda request: requests.update([request.operation])
    heard: list[tuple[int, int]] = []
    read_run(box, seen=lambda done, every: heard.append((done, every)))
    assert requests["get"] == 1 + 2400 + 4  # the manifest, the receipts, the farewells
    assert requests["list"] == 2 * 3 + 2  # claims and receipts in pages of 1000 keys, heartbeats and farewells
    assert heard == sorted(heard)
    assert heard[-1] == (2400, 2400)


def test_files_that_are_named_are_written_and_no_others(tmp_path: Path) -> None:
    stored(open_mailbox((tmp_path / "mailbox").as_uri()), state(PAGE, steps=6, unit_steps=1))
    names = {"--html": "a/page.html", "--svg": "b/picture", "--png": "c/picture.png"}
    words = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    code, output = called("report", str(tmp_path), *words)
    assert code == 0, output
    starts = {name: (tmp_path / name).read_bytes()[:5] for name in names.values()}
    assert starts == {"a/page.html": b"<!doc", "b/picture": b"<?xml", "c/picture.png": b"\x89PNG\r"}
    assert not (tmp_path / "report.json").exists()


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    stored(open_mailbox((tmp_path / "mailbox").as_uri()), state(PAGE, steps=6, unit_steps=1))
    code, output = called("report", str(tmp_path), "--html", str(tmp_path))
    assert code == 2
    assert output == f"{str(tmp_path)!r} cannot be written (Is a directory): give another file"


def test_foreign_objects_are_named_not_fatal(tmp_path: Path) -> None:
    box = open_mailbox(tmp_path.as_uri())
    stored(box, state(PAGE, steps=6, unit_steps=1))
    box.put_if_absent("units/notes.txt", b"hello")
    code, output = called("status", str(tmp_path))
    assert code == 0
    assert "skipped 1 foreign object, such as units/notes.txt" in output


@pytest.mark.parametrize("command", ["status", "report"])
@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere", "there is no folder 'nowhere': give a run's folder, its mailbox folder, or a mailbox URL"),
        ("file:///no/where", "there is no folder '/no/where': give the mailbox URL that the run itself names"),
        ("http://x/y", "mailbox URL 'http://x/y' is not understood"),
        ("s3:///x", "names no bucket"),
    ],
)
def test_what_is_not_there_is_a_sentence(command: str, target: str, sentence: str) -> None:
    code, output = called(command, target)
    assert code == 2
    assert sentence in output


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_folder_without_a_run_is_a_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("x")
    code, output = called(command, str(tmp_path))
    assert code == 2
    assert output.startswith(f"{str(tmp_path)!r} holds no run: neither run.json nor claims under units/ were found")


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    stored(open_mailbox((tmp_path / "mailbox").as_uri()), state(PAGE, steps=6, unit_steps=1))
    (tmp_path / "file").write_text("")
    code, output = called("report", str(tmp_path), "--no-picture", "--out", str(tmp_path / "file"))
    assert code == 2
    assert "file/report.json' cannot be written (File exists): give another folder with --out" in output


def test_a_report_before_the_first_unit_says_so(tmp_path: Path) -> None:
    box = open_mailbox((tmp_path / "mailbox").as_uri())
    run = state(PAGE, steps=6, unit_steps=1)
    assert run.manifest is not None
    box.put_if_absent("run.json", run.manifest.model_dump_json(by_alias=True).encode())
    assert called("report", str(tmp_path)) == (
        2,
        "no unit has been trained to its end yet, so there is no timeline to draw",
    )
    code, output = called("report", str(tmp_path), "--no-picture")
    assert code == 0
    assert "0 of 24 units trained" in output


def test_a_missing_bucket_is_a_configuration_error(s3_server: str) -> None:
    code, output = called("status", "s3://no-such-bucket-here/x", "--endpoint-url", s3_server)
    assert code == 2
    assert "no-such-bucket-here" in output


def test_an_endpoint_that_does_not_answer_is_the_stores_failure(s3_server: str) -> None:
    code, output = called("status", "s3://bucket/x", "--endpoint-url", "http://127.0.0.1:9")
    assert code == 3
    assert "127.0.0.1:9" in output
