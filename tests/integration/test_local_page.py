"""`gradientmail local --serve` with the real trainer: metrics that equal the mailbox, and a page in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gradientmail.commands.local import STAYS
from tests.browser import Browser
from tests.integration.local_runs import Folder, children_of, ended, until
from tests.promtool import Promtool

pytestmark = pytest.mark.timeout(400, func_only=True)  # Chromium may have to be installed first


def told(process: subprocess.Popen[str], words: str) -> re.Match[str]:
    """Read what a command says up to the line that matches, and return the match."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(words, line):
            return found
    raise AssertionError(f"the command does not say {words}")


def served_at(process: subprocess.Popen[str]) -> str:
    """Return the URL that the command says its page is at."""
    return told(process, r"live page at (http://[^ ]+/),")[1]


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body.decode()


def series(url: str, name: str) -> dict[str, float]:
    """Return a metric's value by node."""
    families = text_string_to_metric_families(fetched(f"{url}metrics"))
    samples = (sample for family in families for sample in family.samples if sample.name == name)
    return {sample.labels["node"]: sample.value for sample in samples}


def receipts(folder: Folder) -> Counter[str]:
    """Return how many receipts the mailbox holds by node."""
    texts = [path.read_text() for path in (folder.out / "mailbox" / "consumed").glob("*.json")]
    return Counter(json.loads(text)["learner"].rpartition("-")[0] for text in texts)


def test_after_a_run_with_a_killed_node_the_metrics_equal_the_receipts(tmp_path: Path, promtool: Promtool) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json", "--serve-at", "127.0.0.1:0", "--keep-serving")
    url = served_at(process)
    until(folder.both_hold, process)
    until(lambda: set(series(url, "gradientmail_units")) == {"a-0", "b-0"}, process)
    os.kill(children_of(process.pid)["b-0"], signal.SIGKILL)
    (tmp_path / "gate").touch()
    until(lambda: json.loads(fetched(f"{url}status.json"))["standing"] == "ended", process)
    told(process, re.escape(STAYS))

    exact = receipts(folder)
    assert series(url, "gradientmail_units_consumed_total") == {node: exact[node] for node in ("a-0", "b-0")}
    claimed = {node: folder.claimed_by(node) for node in ("a-0", "b-0")}
    assert series(url, "gradientmail_units_claimed_total") == claimed
    assert sum(claimed.values()) == 24
    status = json.loads(fetched(f"{url}status.json"))
    assert (status["consumed"], status["lost"]) == (exact.total(), 24 - exact.total())
    assert promtool.check_metrics(fetched(f"{url}metrics")) == ""

    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.returncode == 5
    assert json.loads(done.stdout)["report"]["consumed_units"] == exact.total()
    with pytest.raises(urllib.error.URLError):
        fetched(url)


def test_the_page_follows_the_run_and_says_when_it_is_over(tmp_path: Path, chromium: Browser) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json", "--serve-at", "127.0.0.1:0")
    url = served_at(process)
    with chromium.tab() as tab:
        tab.shape(390, 844)
        tab.open(url)
        until(lambda: folder.consumed() > 0, process)
        # Shades are drawn where units took less than a thousandth of the time since the start, as these may.
        tab.until("document.querySelectorAll('#timeline :is(.box, .shade)').length > 0")
        assert tab.evaluate("document.querySelector('.badge').innerText") == "running"
        assert tab.evaluate("document.querySelectorAll('tbody tr').length") == 2
        assert tab.evaluate("document.querySelectorAll('#loss .line').length") > 0
        assert tab.evaluate("document.documentElement.scrollWidth > innerWidth") is False
        assert tab.evaluate("getComputedStyle(document.getElementById('gone')).display") == "none"
        assert tab.complaints() == []
        assert {request for request in tab.requests() if not request.startswith("data:")} == {
            url,
            f"{url}page.css",
            f"{url}live.js",
        }
        (tmp_path / "gate").touch()
        assert ended(process).returncode == 0
        tab.until("document.documentElement.classList.contains('gone')")
        assert "The command no longer answers" in tab.text()


def test_a_script_that_a_page_should_not_have_is_refused(tmp_path: Path, chromium: Browser) -> None:
    folder = Folder(tmp_path, gate="gate")
    process = folder.local("--json", "--serve-at", "127.0.0.1:0")
    url = served_at(process)
    with chromium.tab() as tab:
        tab.open(url)
        tab.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
        )
        assert tab.evaluate("window.ran === undefined") is True
        assert "Content Security Policy" in " ".join(tab.complaints())
    process.send_signal(signal.SIGINT)
    (tmp_path / "gate").touch()
    assert ended(process).returncode == 130


def test_a_taken_port_is_told_before_anything_is_made(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = ended(folder.local("--serve-at", where))
    assert done.returncode == 2
    assert done.stderr.startswith(f"gradientmail: {where} is taken by another process")
    assert not folder.out.exists()
