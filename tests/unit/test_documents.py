"""What the documents say is so: links lead somewhere, commands, options, metrics and exit codes exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer

from gradientmail.cli import COMMANDS, application
from gradientmail.exits import Exit
from gradientmail.mailbox import MailboxUnavailable
from gradientmail.manifest import parse_manifest
from gradientmail.metrics import METRICS as TRAINER_METRICS
from gradientrun.metrics import METRICS as CONTROLLER_METRICS
from tests.prometheus import documented_job

ROOT = Path(__file__).parents[2]
METRICS = (*TRAINER_METRICS, *CONTROLLER_METRICS)
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for part in ("docs", "examples", "bench") for path in (ROOT / part).rglob("*.md"))]
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code(text: str) -> Iterator[str]:
    """Yield what stands in blocks of code and between single backquotes."""
    blocks = text.split("```")
    yield from blocks[1::2]
    for prose in blocks[::2]:
        yield from re.findall(r"`([^`\n]+)`", prose)


def options_of(command: str) -> set[str]:
    """Return the long options of a command, as a person types them."""
    group = typer.main.get_command(application())
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("--")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    assert [target for target in targets if "://" not in target and not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_exist(document: Path) -> None:
    start = re.compile(r"^(?:\.venv/bin/)?gradientmail ([a-z]+)", re.MULTILINE)
    assert {word for text in code(document.read_text()) for word in start.findall(text)} - set(COMMANDS) == set()


@pytest.mark.parametrize(("document", "command"), [("docs/training.md", "train"), ("docs/local.md", "local")])
def test_every_option_is_described_and_no_other(document: str, command: str) -> None:
    rows = [line.split("|")[1] for line in (ROOT / document).read_text().splitlines() if line.startswith("| `--")]
    described = {name for row in rows for name in re.findall(r"--[a-z-]+", row)}
    assert described - options_of(command) == set()
    missing = options_of(command) - described - {"--help"}
    assert {name for name in missing if f"--no-{name.removeprefix('--')}" not in described} == set()


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_whole_manifests_are_valid(document: Path) -> None:
    for text in blocks(document, "yaml"):
        if text.startswith("apiVersion: gradientmail.io"):
            assert parse_manifest(text, name_of(document)).metadata.name == "first"


def test_the_example_of_library_use_runs() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    names: dict[str, Any] = {"session": nullcontext(), "rank": 0, "load_unit": lambda unit: [(unit.first, unit)]}
    exec(example.replace("s3://bucket/runs/first", "memory:readme"), names)
    assert len(list(names["box"].list("consumed/"))) == 800


def test_the_examples_of_the_mailbox_run() -> None:
    verbs, faults = blocks(ROOT / "docs/mailbox.md", "python")
    names: dict[str, Any] = {}
    exec(verbs.replace("s3://bucket/runs/first", "memory:document"), names)
    assert list(names["box"].list()) == []
    exec(faults, names)
    with pytest.raises(MailboxUnavailable):
        names["box"].put_if_absent("units/a", b"n")
    assert names["box"].injected["lost answer"] == 1


def test_every_exit_code_is_described() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.MULTILINE)
    assert {int(number) for row in rows for number in row.split(",")} == {int(code) for code in Exit}


def test_the_page_of_metrics_is_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, "hack/metrics_page.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (check.returncode, check.stderr) == (0, "")


METRIC_NAME = re.compile(r"(?<![\w/:.-])gradient(?:mail|run)_[a-z_]+\b(?![/.])")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_metrics_named_exist(document: Path) -> None:
    parts = {f"{metric.name}_{part}" for metric in METRICS for part in ("bucket", "sum", "count")}
    exported = {metric.exported for metric in METRICS} | parts
    named = {name for text in code(document.read_text()) for name in METRIC_NAME.findall(text)}
    assert named - exported == set()


def test_decisions_are_numbered_in_one_sequence() -> None:
    records = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04d}" for number in range(1, len(records) + 1)]
    assert [path.name for path in records if not path.read_text().startswith(f"# {path.name[:4]} ")] == []


def test_locks_carry_no_address() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        assert re.findall(r"index-url|find-links|https?://", lock.read_text()) == [], lock.name


def test_every_target_of_make_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    described = re.findall(r"^([a-z-]+):.*## .", makefile, re.MULTILINE)
    assert set(targets) - set(described) == {"plan-of-test", "test-cluster-if-possible"}  # said by `make test` itself


@pytest.mark.parametrize(
    ("address", "scraped"), [("10.1.2.3", "10.1.2.3:9400"), ("fd00::1:2", "[fd00::1:2]:9400"), ("::1", "[::1]:9400")]
)
def test_the_documented_job_scrapes_pods_of_both_address_families(address: str, scraped: str) -> None:
    rules = [rule for rule in documented_job()["relabel_configs"] if rule.get("target_label") == "__address__"]
    matches = [(re.fullmatch(rule["regex"], f"{address};9400"), rule["replacement"]) for rule in rules]
    assert [match.expand(re.sub(r"\$(\d)", r"\\\1", form)) for match, form in matches if match] == [scraped]
