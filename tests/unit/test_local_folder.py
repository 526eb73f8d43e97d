from pathlib import Path

import pytest
import yaml

from gradientmail.exits import PrefixInUse, UserError
from gradientmail.local.folder import Place, mailbox_url, prepare
from gradientmail.mailbox import open_mailbox
from gradientmail.report.opening import open_run
from gradientmail.run import GradientRun
from tests.unit.report.simulated import manifest

PLAIN = manifest(["a"], steps=4, unit_steps=1, lanes=1)
MOMENT = 1_769_860_800.0


def with_store(url: str) -> GradientRun:
    record = PLAIN.model_dump(by_alias=True, exclude_none=True)
    record["spec"]["mailbox"] = {"url": url, "endpointURL": "http://127.0.0.1:9", "addressing": "Path"}
    return GradientRun.model_validate(record)


@pytest.mark.parametrize(
    ("run", "asked", "join", "url"),
    [
        (PLAIN, None, False, "file:///runs/x/mailbox"),
        (PLAIN, None, True, "file:///runs/x/mailbox"),
        (PLAIN, "s3://b/runs/", False, "s3://b/runs/default/four-speeds/20260131T120000Z-0000aa"),
        (PLAIN, "s3://b/runs/first", True, "s3://b/runs/first"),
        (with_store("s3://own/runs"), None, False, "s3://own/runs/default/four-speeds/20260131T120000Z-0000aa"),
        (with_store("s3://own/runs"), "file:///y", False, "file:///y/default/four-speeds/20260131T120000Z-0000aa"),
    ],
)
def test_the_mailbox_is_a_folder_or_a_fresh_prefix_or_the_one_to_join(
    run: GradientRun, asked: str | None, join: bool, url: str
) -> None:
    folder = Path("/runs/x")
    assert mailbox_url(run, folder=folder, asked=asked, join=join, moment=MOMENT, token="0000aa") == url


def test_joining_a_run_on_a_store_needs_its_prefix() -> None:
    with pytest.raises(UserError, match="--join needs the prefix"):
        mailbox_url(with_store("s3://bucket/r"), folder=Path(), asked=None, join=True, moment=MOMENT, token="x")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A manifest's file."""
    path = tmp_path / "run.yaml"
    path.write_text("# the very bytes\n")
    return path


def prepared(source: Path, folder: Path, *, join: bool = False, asked: str | None = None) -> Place:
    return prepare(PLAIN, source, out=folder, asked=asked, join=join, moment=MOMENT)


def test_the_folder_keeps_the_manifest_byte_for_byte(tmp_path: Path, source: Path) -> None:
    place = prepared(source, tmp_path / "out")
    assert place.manifest.read_text() == "# the very bytes\n"
    assert place.nodes.is_dir()
    assert not (tmp_path / "out" / "mailbox.yaml").exists()


def test_a_mailbox_elsewhere_is_noted_so_that_the_folder_leads_to_it(tmp_path: Path, source: Path) -> None:
    place = prepared(source, tmp_path / "out", asked=(tmp_path / "store").as_uri())
    place.box.put_if_absent("x", b"here")
    assert open_run(str(tmp_path / "out")).get("x") == b"here"
    assert yaml.safe_load((tmp_path / "out" / "mailbox.yaml").read_text())["url"] == place.mailbox


def test_another_runs_claims_are_refused_before_anything_is_written(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    open_mailbox((out / "mailbox").as_uri()).put_if_absent("units/000000-0.json", b"other")
    with pytest.raises(PrefixInUse, match="holds the claims of another run: leave --out away"):
        prepared(source, out)
    assert not (out / "nodes").exists()
    assert prepared(source, out, join=True).nodes.is_dir()


@pytest.mark.parametrize("asked", [None, "file:///no/such/prefix"])
def test_where_there_is_no_run_none_can_be_joined(asked: str | None, tmp_path: Path, source: Path) -> None:
    with pytest.raises(UserError, match="holds no run to join"):
        prepared(source, tmp_path / "out", join=True, asked=asked)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be made \(Not a directory\): give another with --out"):
        prepared(source, tmp_path / "file" / "out")


def test_two_runs_of_one_second_have_folders_of_their_own(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [prepare(PLAIN, source, out=None, asked=None, join=False, moment=MOMENT).folder for _ in range(3)]
    assert [str(folder) for folder in folders] == [
        "runs/four-speeds/20260131T120000Z",
        "runs/four-speeds/20260131T120000Z-2",
        "runs/four-speeds/20260131T120000Z-3",
    ]
