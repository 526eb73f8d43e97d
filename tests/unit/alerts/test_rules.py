"""The alerts: they are well formed, read what is exported, fire when they ought to and not otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradientmail.metrics import METRICS as TRAINER
from gradientmail.metrics import Metric
from gradientrun.metrics import METRICS as CONTROLLER
from tests.promtool import Promtool

pytestmark = pytest.mark.timeout(120, func_only=True)  # installing promtool may take longer

ROOT = Path(__file__).parents[3]
RULES = ROOT / "charts/gradientmail/files/rules.yaml"
CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
RUNBOOK = ROOT / "docs/runbook.md"
OBSERVABILITY = ROOT / "docs/observability.md"

Rule = dict[str, Any]


def rules(kind: str) -> list[Rule]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


ALERTS = {rule["alert"]: rule for rule in rules("alert")}
RECORDS = {rule["record"]: rule for rule in rules("record")}


def exported(metric: Metric) -> Iterator[str]:
    match metric.kind:
        case "counter":
            yield f"{metric.name}_total"
        case "histogram":
            yield from (f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
        case _:
            yield metric.name


def test_rules_are_well_formed(promtool: Promtool) -> None:
    assert promtool.complaints("check", "rules", "--lint=all", "--lint-fatal", RULES) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_ought_to_and_not_otherwise(case: Path, promtool: Promtool) -> None:
    assert promtool.complaints("test", "rules", case) == ""


def test_every_alert_is_seen_firing_and_seen_quiet() -> None:
    cases = [test for case in CASES for test in yaml.safe_load(case.read_text())["tests"]]
    seen = [check for test in cases for check in test.get("alert_rule_test", [])]
    assert {check["alertname"] for check in seen if check["exp_alerts"]} == set(ALERTS)
    assert {check["alertname"] for check in seen if not check["exp_alerts"]} == set(ALERTS)


def test_rules_read_metrics_that_exist() -> None:
    names = {name for metric in (*TRAINER, *CONTROLLER) for name in exported(metric)}
    read = {name for rule in rules("expr") for name in re.findall(r"(?<![:\w])gradient(?:mail|run)_\w+", rule["expr"])}
    assert read - names == set()
    recorded = {name for rule in rules("expr") for name in re.findall(r"run\w*:\w+:\w+", rule["expr"])}
    assert recorded - set(RECORDS) == set()


def test_labels_that_rules_match_are_exported() -> None:
    labels = {metric.name: {"namespace", "run", "node", *metric.labels} for metric in (*TRAINER, *CONTROLLER)}
    for rule in rules("expr"):
        for name, matchers in re.findall(r"(?<![:\w])(gradient(?:mail|run)_\w+)\{([^}]*)\}", rule["expr"]):
            matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
            assert matched <= labels[name.removesuffix("_total")], name


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_a_person_needs(name: str) -> None:
    alert = ALERTS[name]
    assert name.startswith("GradientRun")
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "{{" not in alert["annotations"]["summary"]
    assert re.search(r"\$labels|No controller", alert["annotations"]["description"])


@pytest.mark.parametrize("name", ALERTS)
def test_the_runbook_has_an_entry(name: str) -> None:
    assert ALERTS[name]["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    _, _, entry = RUNBOOK.read_text().partition(f"\n## {name}\n")
    entry = entry.partition("\n## ")[0]
    parts = re.findall(r"^\*\*(.+?)\.\*\*", entry, re.MULTILINE)
    assert parts == ["Symptom", "Meaning", "Look at", "Do"]


def test_the_runbook_has_no_other_entry() -> None:
    assert re.findall(r"^## (GradientRun\w*)$", RUNBOOK.read_text(), re.MULTILINE) == list(ALERTS)


def test_every_alert_and_recorded_series_is_described() -> None:
    text = OBSERVABILITY.read_text()
    assert [name for name in (*ALERTS, *RECORDS) if f"`{name}`" not in text] == []


def test_the_scrape_configuration_in_the_documents_is_taken_by_prometheus(promtool: Promtool, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", OBSERVABILITY.read_text(), re.MULTILINE | re.DOTALL)
    (configuration,) = [block for block in blocks if block.startswith("scrape_configs:")]
    # Debian's Prometheus is built without Kubernetes' discovery.
    discovery = "kubernetes_sd_configs: [{role: pod}]"
    assert discovery in configuration
    configuration = configuration.replace(discovery, "static_configs: [{targets: ['10.0.0.1']}]")
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "prometheus.yaml").write_text(configuration)
    assert promtool.complaints("check", "config", tmp_path / "prometheus.yaml") == ""


def test_alerts_that_the_documents_change_exist() -> None:
    (names,) = re.findall(r"^    alerts:\n((?:      .*\n)+)", OBSERVABILITY.read_text(), re.MULTILINE)
    assert set(re.findall(r"GradientRun\w+", names)) <= set(ALERTS)
