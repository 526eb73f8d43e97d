"""The report's page in a browser: it opens offline, complains of nothing, and fits a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradientmail.runstate import RunState
from tests.browser import Browser, Tab
from tests.integration.stored_runs import called, stored_at_once
from tests.unit.report.simulated import state

pytestmark = pytest.mark.timeout(400, func_only=True)  # Chromium may have to be installed first

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}
SMALL = state(PAGE, steps=6, unit_steps=1, dies=("b", 7.0))
LARGE = state({"a": 4.0, "b": 2.0, "c": 2.0, "d": 1.0}, steps=2500, unit_steps=1)
UNFIT = "document.documentElement.scrollWidth > innerWidth"


def written(run: RunState, folder: Path) -> str:
    """Store a run, have the command write its page, and return the page's URL."""
    stored_at_once(folder / "mailbox", run)
    file = folder / "page.html"
    code, output = called("report", str(folder), "--html", str(file))
    assert code == 0, output
    assert sorted(path.name for path in folder.iterdir()) == ["mailbox", "page.html"]
    return file.as_uri()


def checked(tab: Tab, url: str) -> None:
    """See that the page asked for nothing but itself, and that nothing in it went wrong."""
    assert {request.split("#")[0] for request in tab.requests()} <= {url, "data:,"}
    assert tab.complaints() == []


def test_a_small_run_shows_each_of_its_units(tmp_path: Path, chromium: Browser) -> None:
    url = written(SMALL, tmp_path)
    with chromium.tab() as tab:
        tab.open(url)
        text = tab.text()
        for wanted in ("four-speeds", "ended", "22 of 24", "lost with b-0: 000003-3.json", "11 units, 50 %"):
            assert wanted in text
        assert tab.evaluate("document.querySelectorAll('.box').length") == 22
        # The style is applied: the policy of the page has let it through.
        assert tab.evaluate("getComputedStyle(document.querySelector('.lanes')).display") == "grid"
        checked(tab, url)


def test_ten_thousand_units_are_shown_as_shades(tmp_path: Path, chromium: Browser) -> None:
    url = written(LARGE, tmp_path)
    with chromium.tab() as tab:
        tab.open(url)
        assert "10,000 of 10,000" in tab.text()
        assert tab.evaluate("document.querySelectorAll('.box').length") == 0
        assert tab.evaluate("document.querySelectorAll('.shade').length") > 3
        assert tab.evaluate("document.getElementsByTagName('*').length") < 500
        checked(tab, url)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(tmp_path: Path, chromium: Browser, dark: bool) -> None:
    url = written(SMALL, tmp_path)
    with chromium.tab() as tab:
        tab.shape(390, 844, dark=dark)
        tab.open(url)
        assert tab.evaluate(UNFIT) is False
        assert tab.evaluate("document.querySelector('.scroll').scrollWidth > innerWidth") is True
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(15, 19, 24)" if dark else "rgb(255, 255, 255)")
        checked(tab, url)


def test_every_picture_has_a_name_that_a_screen_reader_can_say(tmp_path: Path, chromium: Browser) -> None:
    url = written(SMALL, tmp_path)
    with chromium.tab() as tab:
        tab.open(url)
        tab.call("Accessibility.enable")
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        names = [
            node.get("name", {}).get("value", "") for node in nodes if node.get("role", {}).get("value") == "image"
        ]
        assert "a-0: 11 units, 50 %" in names
        assert "units consumed by each node over the time since the first batch" in names
        assert "" not in names
