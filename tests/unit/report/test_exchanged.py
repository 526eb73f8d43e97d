"""What status and report say of the exchange and of the final model, from what the nodes have said last."""

import io
from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console, RenderableType

from gradientmail.progress import ExchangeProgress, NodeProgress
from gradientmail.report.exchanged import FinalModel, StoredModel
from gradientmail.report.figures import figures
from gradientmail.report.page import View, report_page
from gradientmail.report.status import run_status
from gradientmail.report.table import report_text, status_text
from gradientmail.runstate import Learner, RunState

from .simulated import EPOCH, state

A = ExchangeProgress(
    merged=12, adopted=14, versions=(7, 6), staleness_steps=5, staleness_steps_total=40, sent_bytes=1_250_000
)
B = ExchangeProgress(
    merged=3, adopted=6, versions=(5, 6), staleness_steps=1, staleness_steps_total=10, received_bytes=640_000
)
LINE = "exchange: versions 5 to 7, mean staleness 2.5 steps, 1.25 MB sent, 640 kB received"


def run(exchanges: Mapping[str, ExchangeProgress], **changes: object) -> RunState:
    """Return a run of nodes a-0 and b-0 whose last words tell of these exchanges."""
    done = state({"a": 1.0, "b": 0.5}, steps=6, unit_steps=1, **changes)  # type: ignore[arg-type]
    return replace(done, learners={name: told(learner, exchanges) for name, learner in done.learners.items()})


def told(learner: Learner, exchanges: Mapping[str, ExchangeProgress]) -> Learner:
    assert learner.progress is not None
    return replace(learner, progress=replace(learner.progress, exchange=exchanges.get(learner.node)))


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


BOTH = run({"a-0": A, "b-0": B})
WRITTEN = replace(run({"a-0": A, "b-0": replace(B, final_samples=1280, final_held_out_loss=2.5)}), has_final_model=True)


def test_status_has_a_line_of_totals_and_each_nodes_version_and_staleness() -> None:
    text = shown(status_text(run_status(BOTH)))
    assert LINE in text.splitlines()
    rows = {line.split()[0]: line.split()[-2:] for line in text.splitlines() if line[1:3] == "-0"}
    assert rows == {"a-0": ["6", "5"], "b-0": ["5", "1"]}


def test_status_as_json_has_totals_and_all_that_each_node_tells() -> None:
    record = run_status(BOTH).to_dict()
    assert record["exchange"] == {
        "lowest_version": 5,
        "highest_version": 7,
        "merged": 15,
        "missed": 0,
        "mean_staleness_steps": 2.5,
        "sent_bytes": 1_250_000,
        "received_bytes": 640_000,
        "refused": 0,
        "blocked_seconds": 0.0,
    }
    assert [node["exchange"]["versions"] for node in record["nodes"]] == [(7, 6), (5, 6)]


def test_a_node_that_has_exchanged_nothing_yet_has_no_version() -> None:
    text = shown(status_text(run_status(run({"a-0": A}))))
    rows = {line.split()[0]: line.split()[-2:] for line in text.splitlines() if line[1:3] == "-0"}
    assert rows == {"a-0": ["6", "5"], "b-0": ["-", "-"]}


def test_a_run_without_an_exchange_says_nothing_of_it() -> None:
    alone = run({})
    texts = [shown(status_text(run_status(alone))), shown(report_text(figures(alone))), report_page(View.of(alone))]
    for word in ("exchange", "version", "stale", "model"):
        assert not any(word in text.split("<main>")[-1] for text in texts)
    assert run_status(alone).to_dict()["exchange"] is None
    assert figures(alone).to_dict()["exchange"] is None
    assert figures(alone).to_dict()["final_model"] is None


def test_versions_are_those_of_the_live_nodes_and_traffic_is_everyones() -> None:
    going = run({"a-0": A, "b-0": B}, dies=("b", 7.0))
    learner = going.learners["a-0-abc123"]
    going = replace(
        going, read_at=EPOCH + 20.0, learners={**going.learners, learner.name: replace(learner, left=False)}
    )
    both, one = (run_status(going, silent_after=seconds).exchange for seconds in (60.0, 12.5))
    assert both is not None
    assert one is not None
    assert (both.lowest_version, both.highest_version) == (5, 7)
    assert (one.lowest_version, one.highest_version) == (6, 7)
    assert both.received_bytes == one.received_bytes == 640_000


def test_versions_of_a_node_that_was_replaced_do_not_count_and_its_traffic_does() -> None:
    word = NodeProgress("b-0-def456", "b-0", time=BOTH.read_at, exchange=replace(B, versions=(7, 7)))
    again = Learner(word.learner, "b-0", word, 1, left=True)
    totals = run_status(replace(BOTH, learners={**BOTH.learners, again.name: again})).exchange
    assert totals is not None
    assert (totals.lowest_version, totals.highest_version) == (6, 7)
    assert totals.received_bytes == 1_280_000


def test_the_report_names_the_final_model_what_it_is_from_and_how_good_it_is() -> None:
    result = figures(WRITTEN)
    assert result.final_model == StoredModel("model/final.safetensors", ["a-0", "b-0"], FinalModel("b-0", 1280, 2.5))
    lines = shown(report_text(result)).splitlines()
    assert LINE in lines
    assert "model: model/final.safetensors: held-out loss 2.5000, 1,280 tokens, from a-0, b-0" in lines
    assert result.to_dict()["final_model"] == {
        "key": "model/final.safetensors",
        "contributors": ["a-0", "b-0"],
        "written": {"node": "b-0", "samples": 1280, "held_out_loss": 2.5},
    }


def test_the_report_says_that_there_is_no_final_model_yet_and_how_to_get_one() -> None:
    lines = shown(report_text(figures(BOTH))).splitlines()
    assert "model: no final one yet; `gradientmail export` puts the newest versions together" in lines


def test_a_final_model_whose_writer_has_said_nothing_is_named_all_the_same() -> None:
    idle = run({"a-0": A, "b-0": ExchangeProgress(versions=(0, 0))})
    model = figures(replace(idle, has_final_model=True)).final_model
    assert model is not None
    assert model.line == "model/final.safetensors: not described by the node that wrote it, from a-0"


def test_the_page_has_a_section_of_it_and_each_nodes_traffic() -> None:
    text = report_page(View.of(WRITTEN))
    assert f"<p>{LINE}</p>" in text
    assert "<p>model: model/final.safetensors: held-out loss 2.5000, 1,280 tokens, from a-0, b-0</p>" in text
    assert "<td>6</td><td>5</td><td>1.25 MB</td><td>0 B</td></tr>" in text
    assert "<td>5</td><td>1</td><td>0 B</td><td>640 kB</td></tr>" in text
