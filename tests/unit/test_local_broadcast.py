"""Page and metrics of a local run together, served for real."""

from __future__ import annotations

import io
import json
import urllib.request
from dataclasses import replace

import pytest
from rich.console import Console

from gradientmail.local.broadcast import ScreenAndPage, broadcast
from gradientmail.local.history import History
from gradientmail.local.live import Subject
from gradientmail.local.screen import PlainScreen
from gradientmail.local.serving import Address
from gradientmail.local.watching import NodeView, RunView
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.progress import NodeProgress
from tests.unit.report.simulated import EPOCH, manifest, state

RUN = manifest(["a", "b"], steps=60, unit_steps=20, lanes=2)
SUBJECT = Subject(RUN, RUN.spec.data.grid(), joined=False)
WORD = NodeProgress("a-0-abc123", "a-0", EPOCH, "training", claimed=2, consumed=1)
VIEW = RunView(
    len(SUBJECT.units), 120, {"a-0": NodeView("a-0", "a-0-abc123", WORD), "b-0": NodeView("b-0", "b-0-abc123")}
)
ENDED = state({"a": 1.0, "b": 0.5}, steps=60, unit_steps=20, lanes=2)


def fetched(address: Address, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        body: bytes = answer.read()
    return body.decode()


def test_page_and_metrics_follow_the_views_and_end_with_what_the_mailbox_says() -> None:
    with broadcast(Address(port=0), SUBJECT, MemoryStore(), History(), VIEW) as shown:
        assert json.loads(fetched(shown.address, "/status.json"))["nodes"][0]["consumed"] == 1
        assert "gradientmail_units_consumed_total{" not in fetched(shown.address, "/metrics")
        ended = VIEW.ended("a-0", "finished").ended("b-0", "finished")
        shown.end(ended, ENDED)
        status = json.loads(fetched(shown.address, "/status.json"))
        assert (status["standing"], status["consumed"]) == ("complete", 6)
        page = fetched(shown.address, "/metrics")
        for node, consumed in (("a-0", 4), ("b-0", 2)):
            assert (
                f'gradientmail_units_consumed_total{{namespace="default",node="{node}",run="four-speeds"}} {consumed}.0'
                in page
            )


def test_where_the_mailbox_could_not_be_read_the_last_words_stay() -> None:
    with broadcast(Address(port=0), SUBJECT, MemoryStore(), History(), VIEW) as shown:
        shown.end(VIEW.ended("a-0", "killed"), None)
        assert shown.live.last_words() == {"a-0": WORD}


def test_a_node_is_scraped_where_its_log_says_it_listens() -> None:
    with broadcast(Address(port=0), SUBJECT, MemoryStore(), History(), VIEW) as shown:
        shown.note("a-0", "plain text")
        shown.note("a-0", json.dumps({"event": "serving", "message": "metrics at port 5", "port": 5}))
        assert shown.metrics._ports == {"a-0": 5}


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_whoever_opens_it_to_others_is_told(host: str, warned: bool) -> None:
    with broadcast(Address(host, 0), SUBJECT, MemoryStore(), History(), VIEW) as shown:
        assert shown.told.startswith(f"live page at http://{shown.address}/, metrics at http://{shown.address}/metrics")
        assert ("without a password" in shown.told) is warned


def test_the_page_sees_what_the_screen_sees() -> None:
    console = Console(file=io.StringIO(), width=200)
    with broadcast(Address(port=0), SUBJECT, MemoryStore(), History(), VIEW) as shown:
        screen = ScreenAndPage(PlainScreen(console, every_seconds=0.0), shown.live)
        later = replace(VIEW, nodes={**VIEW.nodes, "a-0": replace(VIEW.nodes["a-0"], ended="finished")})
        with screen:
            screen.show(later)
            screen.say("b-0 goes on")
        assert list(shown.live.last_words()) == ["a-0"]
    assert isinstance(console.file, io.StringIO)
    assert "a-0 1/2 finished" in console.file.getvalue()
    assert "b-0 goes on" in console.file.getvalue()
