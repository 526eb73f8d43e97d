"""The shipped dashboards: up to date, complete, and asking only for metrics and labels that are declared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.models import units as grafana

from gradientmail.metrics import COMMON, METRICS, Metric
from gradientrun.metrics import METRICS_OF_RUNS, METRICS_OF_THE_CONTROLLER
from gradientrun.metrics import RUN as OF_A_RUN
from tests.dashboards import FLEET, RUN, load, panels, queries
from tests.promtool import Promtool

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 24
UNITS = {value for name, value in vars(grafana).items() if isinstance(value, str) and not name.startswith("_")}
UNLABELLED = {"none", "short"}
"""Units that say nothing of what is counted."""
EVERY_PANEL = [(uid, panel) for uid in (RUN, FLEET) for panel in panels(uid)]

MATCHERS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
METRIC = re.compile(r"\b(gradient(?:mail|run)_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def series(metrics: tuple[Metric, ...], common: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    for metric in metrics:
        for suffix in SUFFIXES[metric.kind]:
            bound = ("le",) if suffix == "_bucket" else ()
            yield metric.name + suffix, frozenset((*common, *metric.labels, *bound))


DECLARED: Mapping[str, frozenset[str]] = dict(
    [
        *series(METRICS, COMMON),
        *series(METRICS_OF_RUNS, OF_A_RUN),
        *series(METRICS_OF_THE_CONTROLLER, ()),
    ]
)


def undeclared(expression: str) -> set[str]:
    """Return names of metrics and labels that nothing declares; what is grouped by must be on every metric."""
    found = METRIC.findall(expression)
    names = {name for name, _ in found}
    wrong = names - DECLARED.keys()
    wrong |= {f"{name}{{{label}}}" for name, select in found for label in MATCHERS.findall(select)
              if label not in DECLARED.get(name, ())}  # fmt: skip
    grouped = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
    return wrong | {f"by ({label}) of {name}" for name in names for label in grouped - DECLARED.get(name, frozenset())}


def test_files_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, "-m", "hack.dashboards", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (check.returncode, check.stderr) == (0, "")


def test_the_check_of_names_finds_what_is_wrong() -> None:
    assert undeclared('sum by (node) (gradientmail_units{run="a"})') == set()
    assert undeclared('sum by (pod) (gradientmail_unit{run="a"})') == {
        "gradientmail_unit",
        "gradientmail_unit{run}",
        "by (pod) of gradientmail_unit",
    }
    assert undeclared('rate(gradientmail_batches{lane="1"}[1m])') == {
        "gradientmail_batches",
        "gradientmail_batches{lane}",
    }
    assert undeclared('gradientrun_units{node="a-0"}') == {"gradientrun_units{node}"}


def test_every_query_asks_for_declared_metrics_and_labels() -> None:
    wrong = {str(query): bad for query in queries() if (bad := undeclared(query.expression))}
    assert wrong == {}
    assert len(list(queries())) > 70


def test_every_legend_names_labels_that_its_series_keep() -> None:
    for query in queries():
        kept = {label.strip() for group in GROUPING.findall(query.expression) for label in group.split(",")}
        assert set(re.findall(r"{{(\w+)}}", query.name)) <= kept, query


def test_every_query_parses(promtool: Promtool, tmp_path: Path) -> None:
    values = {"namespace": "team-a", "run": "first", "shown": "3h", "window": "1m"}
    rules = [
        {"record": f"panel:{number}", "expr": query.with_values(**values)} for number, query in enumerate(queries())
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert promtool.complaints("check", "rules", file) == ""
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": [{"record": "a", "expr": "sum by (x"}]}]}))
    assert "unclosed left parenthesis" in promtool.complaints("check", "rules", file)


@pytest.mark.parametrize(("uid", "panel"), EVERY_PANEL, ids=[f"{uid}-{panel['title']}" for uid, panel in EVERY_PANEL])
def test_every_panel_explains_itself(uid: str, panel: Mapping[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["description"].endswith(f"\n\nEmpty: {defaults['noValue']}")
    assert len(panel["description"].split("\n\nEmpty: ")[0]) >= 20
    assert defaults["unit"] in UNITS
    if panel["type"] in ("timeseries", "xychart") and defaults["unit"] in UNLABELLED:
        assert defaults["custom"]["axisLabel"], "the unit does not say what is counted"
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert target["instant"] != target["range"]


@pytest.mark.parametrize("uid", [RUN, FLEET])
def test_panels_lie_side_by_side(uid: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in load(uid)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < WIDTH
        taken |= cells
    widths = {y: sum(1 for x, row in taken if row == y) for _, y in taken}
    assert set(widths.values()) == {WIDTH}, "no gap in any line"


@pytest.mark.parametrize(
    ("uid", "names"), [(RUN, ["datasource", "namespace", "run"]), (FLEET, ["datasource", "namespace"])]
)
def test_variables(uid: str, names: list[str]) -> None:
    variables = load(uid)["templating"]["list"]
    assert [variable["name"] for variable in variables] == names
    for variable in variables[1:]:
        selector = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert selector is not None
        assert selector[2] == variable["name"]
        assert set(re.findall(r"gradient\w+", selector[1])) <= DECLARED.keys()


def test_titles_and_numbers_are_each_used_once() -> None:
    for uid in (RUN, FLEET):
        shown = panels(uid)
        assert len({panel["title"] for panel in shown}) == len(shown)
        assert [panel["id"] for panel in shown] == list(range(1, len(shown) + 1))


def test_a_line_of_the_table_of_runs_leads_to_the_run() -> None:
    (table,) = [panel for panel in panels(FLEET) if panel["type"] == "table"]
    (links,) = [
        each["properties"][0]["value"]
        for each in table["fieldConfig"]["overrides"]
        if each["matcher"]["options"] == "run"
    ]
    assert links[0]["url"].startswith(f"/d/{RUN}?")
    assert "var-run=${__data.fields.run}" in links[0]["url"]
    assert load(RUN)["uid"] == RUN
