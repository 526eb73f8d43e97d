import re
from dataclasses import replace
from html.parser import HTMLParser

from gradientmail.progress import NodeProgress
from gradientmail.report.page import View, report_page
from gradientmail.runstate import RunState

from .simulated import EPOCH, state

PAGE = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25}
VOID = {"meta", "link", "br"}


def page(**changes: object) -> RunState:
    return state(PAGE, steps=6, unit_steps=1, **changes)  # type: ignore[arg-type]


class Tree(HTMLParser):
    """Elements of a page; what is opened has to be closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.found if (value := attributes.get(name)) is not None]


def sections(text: str) -> list[str]:
    return re.findall(r'<section [^>]*id="([a-z]+)"', text)


def test_the_report_is_one_well_formed_file_that_loads_and_runs_nothing() -> None:
    text = report_page(View.of(page(dies=("b", 7.0))))
    tree = Tree(text)
    tags = {tag for tag, _ in tree.found}
    assert not tags & {"script", "img", "iframe", "object", "form", "base"}
    assert [value for name in ("src", "href") for value in tree.values(name)] == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src &#x27;none&#x27;; style-src &#x27;sha256-" in text


def test_the_report_says_where_the_run_stands_who_did_what_and_what_was_lost() -> None:
    text = report_page(View.of(page(dies=("b", 7.0))))
    assert sections(text) == ["standing", "nodes", "timeline", "units", "lost"]
    for wanted in (
        "<title>four-speeds: ended</title>",
        "<dt>units consumed</dt><dd>22 of 24</dd>",
        '<dt>lost</dt><dd class="bad">1</dd>',
        "<dt>makespan</dt><dd>12.0 s</dd>",
        "<dt>fixed split</dt><dd>22.0 s</dd>",
        "lost with b-0: 000003-3.json",
        "a-0: 11</li>",
    ):
        assert wanted in text


def test_every_element_that_is_referred_to_is_there_once() -> None:
    tree = Tree(report_page(View.of(page(dies=("b", 7.0)))))
    identifiers = tree.values("id")
    assert len(set(identifiers)) == len(identifiers)
    assert set(tree.values("aria-labelledby")) <= set(identifiers)


def test_names_cannot_become_markup() -> None:
    evil = '<img src=x onerror="alert(1)">'
    run = page(dies=("b", 7.0))
    learners = {
        name: replace(
            learner,
            node=evil,
            progress=NodeProgress(name, evil, EPOCH, phase=evil, message=evil),  # type: ignore[arg-type]
        )
        for name, learner in run.learners.items()
    }
    text = report_page(View.of(replace(run, learners=learners)))
    assert "<img" not in text
    assert "onerror=&quot;alert(1)&quot;" in text
    Tree(text)


def test_the_loss_is_drawn_where_it_is_known_and_what_is_no_number_left_out() -> None:
    view = replace(View.of(page()), loss={"a-0": [(0, 3.0), (10, float("nan")), (20, 2.5)], "b-0": [(5, float("inf"))]})
    text = report_page(view)
    assert "loss" in sections(text)
    assert "a-0: 2.500</li>" in text
    assert "b-0: inf" not in text


def test_the_loss_of_several_slices_of_a_step_is_their_mean() -> None:
    text = report_page(replace(View.of(page()), loss={"a-0": [(20, 1.0), (0, 3.0), (20, 2.0)]}))
    assert "a-0: 1.500</li>" in text


def test_the_loss_is_drawn_from_its_first_step_to_its_last() -> None:
    text = report_page(replace(View.of(page()), loss={"a-0": [(0, 3.0), (20, 2.5)]}))
    (line,) = re.findall(r'<path d="([^"]*)" class="line"[^>]*><title>a-0</title></path></svg><span>', text)
    assert line == "M0.0 0.0L1000.0 83.3"


def test_a_running_run_says_how_much_time_is_left_and_how_much_its_nodes_wait() -> None:
    run = page(dies=("b", 7.0))
    going = replace(run, read_at=EPOCH + 12.0)
    view = replace(View.of(going), seconds_left=90.0, waiting_lately={"a-0": 0.4})
    text = report_page(view)
    assert '<strong class="badge running">running</strong>' in text
    assert "<dt>time left</dt><dd>about 1 min 30 s</dd>" in text
    assert '<rect width="40.0%" height="100%"></rect></svg>40.0 %' in text


def test_a_run_of_which_nothing_is_known_has_a_page() -> None:
    text = report_page(View.of(RunState(read_at=0.0)))
    assert sections(text) == ["standing"]
    assert "run without a manifest" in text


def test_a_hundred_thousand_units_are_a_small_file() -> None:
    text = report_page(View.of(state({"a": 4.0, "b": 1.0}, steps=25_000, unit_steps=1)))
    assert "<dd>100,000 of 100,000</dd>" in text
    assert len(text) < 60_000
