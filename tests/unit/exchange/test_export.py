"""`gradientmail export`: the final model, the newest versions, and the sentences for neither."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from gradientmail.commands.export import register
from gradientmail.exchange import Session
from gradientmail.exits import UserError
from gradientmail.mailbox import open_mailbox
from tests.unit.exchange.doubles import Small
from tests.waiting import until


def export(*arguments: object) -> Result:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_the_final_model_is_fetched_and_a_run_going_on_is_assembled(tmp_path: Path) -> None:
    url = (tmp_path / "run").as_uri()
    file = tmp_path / "model.safetensors"
    model = Small()
    with Session(model, mailbox=open_mailbox(url), learner_id="node-0", sync_every=1, poll_seconds=0.002) as session:
        until(lambda: min(session.statistics.versions) >= 2, meanwhile=lambda: session.step(samples=4))
        going_on = export(url, file, "--json")
        assert going_on.exit_code == 0
        told = json.loads(going_on.output)
        assert not told["final"]
        assert int(told["samples"]) == 4 * int(told["steps"]) > 0
        assert set(load_file(file)) == {"embed.weight", "middle.weight", "middle.bias"}
    steps = session.statistics.steps
    final = export(url, file)
    assert final.output == f"{file}: the final model, {4 * steps:,} samples in {steps:,} steps\n"
    assert torch.equal(load_file(file)["embed.weight"], model.embed.weight)
    with Session(model, mailbox=open_mailbox(url), learner_id="node-1", sync_every=1, poll_seconds=0.002) as session:
        until(lambda: min(session.statistics.versions) > 5, meanwhile=lambda: session.step(samples=4))
        assert "the newest versions of a run that has written no final model since" in export(url, file).output
    assert export(url, file).output.startswith(f"{file}: the final model, ")


def test_what_cannot_be_exported_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nothing = export((tmp_path / "empty").as_uri(), tmp_path / "model.safetensors")
    assert isinstance(nothing.exception, UserError)
    assert "give the folder or the URL of a run that trains with the exchange" in str(nothing.exception)
    with Session(Small(), mailbox=open_mailbox((tmp_path / "run").as_uri()), learner_id="node-0") as session:
        session.step(samples=1)
        nowhere = export((tmp_path / "run").as_uri(), tmp_path / "none" / "model.safetensors")
    assert isinstance(nowhere.exception, UserError)
    assert "cannot be written" in str(nowhere.exception)
