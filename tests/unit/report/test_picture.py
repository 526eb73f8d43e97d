from pathlib import Path

import pytest
from matplotlib.image import imread

from gradientmail.report import picture
from gradientmail.report.figures import figures
from gradientmail.report.picture import PictureNotPossible, draw
from gradientmail.runstate import RunState

from .simulated import state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}


def svg_of(run: RunState, folder: Path) -> str:
    png, svg = folder / "timeline.png", folder / "timeline.svg"
    draw(figures(run), {"png": png, "svg": svg}, "")
    assert png.read_bytes().startswith(b"\x89PNG")
    return svg.read_text(encoding="utf-8")


def test_both_pictures_name_run_nodes_units_and_figures(tmp_path: Path) -> None:
    text = svg_of(state(PAGE, steps=6, unit_steps=1), tmp_path)
    for wanted in ("four-speeds", "a-0", "d-0", ">5-3<", "11 units, 46 %", "fixed split 24.0 s", "ideal 10.7 s"):
        assert wanted in text


def test_lost_units_are_hatched(tmp_path: Path) -> None:
    assert "<pattern" in svg_of(state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0)), tmp_path)
    assert "<pattern" not in svg_of(state(PAGE, steps=6, unit_steps=1), tmp_path)


def test_units_under_two_pixels_are_drawn_as_busy_shares(tmp_path: Path) -> None:
    text = svg_of(state(PAGE, steps=10_000, unit_steps=1), tmp_path)
    assert "shade: share of time busy" in text
    assert len(text) < 100_000


def test_thirty_two_nodes_with_many_lanes_fit(tmp_path: Path) -> None:
    text = svg_of(state({f"pool{index}": 1.0 + index % 4 for index in range(32)}, steps=60, lanes=32), tmp_path)
    assert "pool31-0" in text
    height, width, _ = imread(tmp_path / "timeline.png").shape
    assert width == 1584
    assert height < 1700


def test_the_background_is_transparent(tmp_path: Path) -> None:
    svg_of(state(PAGE, steps=6, unit_steps=1), tmp_path)
    assert imread(tmp_path / "timeline.png")[0, 0, 3] == 0.0


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = state(PAGE, steps=6, unit_steps=1)
    assert svg_of(run, tmp_path) == svg_of(run, tmp_path)


def test_nothing_trained_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PictureNotPossible, match="no unit has been trained"):
        draw(figures(RunState(read_at=0.0)), {"png": tmp_path / "x"}, "")


def test_without_matplotlib_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "find_spec", lambda _: None)
    with pytest.raises(PictureNotPossible, match=r"pip install './trainer\[report\]'"):
        draw(figures(state(PAGE, steps=6, unit_steps=1)), {"png": tmp_path / "x"}, "")
