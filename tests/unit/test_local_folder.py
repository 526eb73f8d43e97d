import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from gradientmail.exits import PrefixInUse, UserError
from gradientmail.local.folder import Place, mailbox_url, prepare, withdraw
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
def source() -> bytes:
    """A manifest's text."""
    return b"# the very bytes\n"


def prepared(source: bytes, folder: Path, *, join: bool = False, asked: str | None = None) -> Place:
    return prepare(PLAIN, source, out=folder, asked=asked, join=join, moment=MOMENT)


def test_the_folder_keeps_the_manifest_byte_for_byte(tmp_path: Path, source: bytes) -> None:
    place = prepared(source, tmp_path / "out")
    assert place.manifest.read_text() == "# the very bytes\n"
    assert place.nodes.is_dir()
    assert not (tmp_path / "out" / "mailbox.yaml").exists()


def test_a_mailbox_elsewhere_is_noted_so_that_the_folder_leads_to_it(tmp_path: Path, source: bytes) -> None:
    place = prepared(source, tmp_path / "out", asked=(tmp_path / "store").as_uri())
    place.box.put_if_absent("x", b"here")
    assert open_run(str(tmp_path / "out")).get("x") == b"here"
    assert yaml.safe_load((tmp_path / "out" / "mailbox.yaml").read_text())["url"] == place.mailbox


def test_another_runs_claims_are_refused_before_anything_is_written(tmp_path: Path, source: bytes) -> None:
    out = tmp_path / "out"
    open_mailbox((out / "mailbox").as_uri()).put_if_absent("units/000000-0.json", b"other")
    with pytest.raises(PrefixInUse, match="holds the claims of another run: leave --out away"):
        prepared(source, out)
    assert not (out / "nodes").exists()
    assert prepared(source, out, join=True).nodes.is_dir()


@pytest.mark.parametrize("asked", [None, "file:///no/such/prefix"])
def test_where_there_is_no_run_none_can_be_joined(asked: str | None, tmp_path: Path, source: bytes) -> None:
    with pytest.raises(UserError, match="holds no run to join"):
        prepared(source, tmp_path / "out", join=True, asked=asked)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"file/out' cannot be written \(Not a directory\): give another folder with --out"
    ):
        prepared(source, tmp_path / "file" / "out")
    with pytest.raises(UserError, match=r"file' cannot be written \(File exists\): give another folder with --out"):
        prepared(source, tmp_path / "file")


def test_a_manifest_that_cannot_be_kept_is_a_sentence(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "out" / "manifest.yaml").mkdir(parents=True)
    with pytest.raises(UserError, match=r"out' cannot be written \(Is a directory\): give another folder with --out"):
        prepared(source, tmp_path / "out")


@pytest.mark.parametrize("url", ["memory:x", "./folder", "file:relative", "file:///a?b", "s3://"])
def test_a_url_of_no_store_that_nodes_can_share_is_refused_before_anything_is_made(
    url: str, tmp_path: Path, source: bytes
) -> None:
    with pytest.raises(UserError) as told:
        prepared(source, tmp_path / "out", asked=url)
    assert str(told.value) == (
        f"--mailbox is {url!r}: expected s3://BUCKET/PREFIX or file:///FOLDER, which all nodes can reach"
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_used_again_does_not_lead_to_the_mailbox_of_the_run_before(tmp_path: Path, source: bytes) -> None:
    prepared(source, tmp_path / "out", asked=(tmp_path / "store").as_uri())
    place = prepared(source, tmp_path / "out")
    place.box.put_if_absent("x", b"here")
    assert open_run(str(tmp_path / "out")).get("x") == b"here"


def test_a_run_in_which_nothing_was_claimed_is_withdrawn(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "before").mkdir()
    for folder in (tmp_path / "out", tmp_path / "before"):
        place = prepared(source, folder)
        for key in ("run.json", "alive/a-0-x/0000000000", "left/a-0-x"):
            place.box.put_if_absent(key, b"")
        withdraw(place, ["a-0-x"])
        assert list(place.box.list()) == []
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "before" / "manifest.yaml").exists(), "a folder that was there before stays"


@pytest.mark.parametrize("key", ["units/000000-0.json", "alive/a-0-y/0000000000"])
def test_a_run_that_others_take_part_in_is_not_withdrawn(key: str, tmp_path: Path, source: bytes) -> None:
    place = prepared(source, tmp_path / "out")
    for each in ("run.json", key):
        place.box.put_if_absent(each, b"")
    withdraw(place, ["a-0-x"])
    assert list(place.box.list()) == sorted(["run.json", key])
    assert place.manifest.exists()


def test_runs_of_one_second_have_folders_of_their_own(
    tmp_path: Path, source: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def started(_: int) -> Path:
        together.wait(20)
        return prepare(PLAIN, source, out=None, asked=None, join=False, moment=MOMENT).folder

    with ThreadPoolExecutor(8) as pool:
        folders = sorted(map(str, pool.map(started, range(8))))
    assert folders == [
        "runs/four-speeds/20260131T120000Z",
        *(f"runs/four-speeds/20260131T120000Z-{number}" for number in range(2, 9)),
    ]
