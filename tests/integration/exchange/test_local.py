"""A local run as a user starts it, with the exchange: one node is killed, the model is fetched and loaded."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model

from gradientmail.exchange.keys import ROUNDS
from gradientmail.mailbox import open_mailbox
from gradientmail.training.task import Setting
from tests.integration import noisy_task
from tests.integration.local_runs import MANIFEST, Folder, children_of, ended, until

STEPS, BATCH = 200, 12
EXCHANGE = {"syncEvery": 10, "fragments": 2, "patienceSeconds": 2}


def loss_of(file: Path | None) -> float:
    """Load a model as its user would, and evaluate it; without a file, evaluate what training begins with."""
    cpu = torch.device("cpu")
    task = noisy_task.task(
        Setting(device=cpu, seed=3, steps=STEPS, batch=BATCH, micro_batch=4, autocast=None), learning_rate=0.1
    )
    if file:
        load_model(task.model, file)
    assert task.evaluate is not None
    return task.evaluate(task.model)


def newest(folder: Folder) -> int:
    """Return the newest version that both fragments have reached; old ones are deleted as the run goes on."""
    keys = open_mailbox((folder.out / "mailbox").as_uri()).list(ROUNDS)
    reached = {"0000": 0, "0001": 0}
    for fragment, version, what, *_ in (key.removeprefix(ROUNDS).split("/") for key in keys):
        if what == "version":
            reached[fragment] = max(reached[fragment], int(version))
    return min(reached.values())


@pytest.mark.timeout(600)  # for machines that are busy
def test_a_run_that_loses_a_node_leaves_one_model_that_loads_back_to_the_loss_it_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "noisy.py").write_text(Path(noisy_task.__file__).read_text())
    trainer = {"task": "noisy:task", "args": {"gate": "open"}, "microBatch": 4, "logEvery": 20, "exchange": EXCHANGE}
    data = {"steps": STEPS, "batch": BATCH, "lanes": 3, "unitSteps": 5}
    nodes = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    folder.write({**MANIFEST, "spec": {"data": data, "trainer": trainer, "nodes": nodes}})
    process = folder.local("--json")
    until(lambda: newest(folder) >= 2, process)
    until(lambda: folder.claimed_by("b") > 0, process)
    os.kill(children_of(process.pid)["b-0"], signal.SIGKILL)
    (tmp_path / "open").touch()
    done = ended(process)
    result = json.loads(done.stdout)
    assert {end["node"]: end["ended"] for end in result["ends"]} == {
        "a-0": "finished",
        "b-0": "killed",
        "c-0": "finished",
    }
    assert [path.name for path in (folder.out / "mailbox" / "model").iterdir()] == ["final.safetensors"]
    assert result["final_model"]["url"] == f"{result['mailbox']}/model/final.safetensors"
    assert result["exchange"]["highest_version"] > 2

    exported = folder.run("export", "out", "model.safetensors", "--json")
    assert exported.returncode == 0, exported.stderr
    told = json.loads(exported.stdout)
    assert (told["final"], int(told["samples"])) == (True, result["final_model"]["samples"])
    loss = loss_of(tmp_path / "model.safetensors")
    assert loss == pytest.approx(result["final_model"]["held_out_loss"], abs=1e-6)
    assert loss < loss_of(None) - 0.3
