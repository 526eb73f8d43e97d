"""Every example runs: as it is, or with its sizes made small."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from gradientmail.cli import explained
from gradientmail.exits import Exit
from gradientmail.layout import left_key
from gradientmail.mailbox import S3Options, open_mailbox
from gradientmail.mailbox.base import Store
from gradientmail.manifest import load_manifest, run_from_object
from gradientmail.progress import NodeProgress
from gradientmail.run import GradientRun
from gradientmail.training.data.text import Wish, make_corpus
from gradientmail.training.interruption import Interruption
from gradientmail.training.node import NodeOptions
from gradientmail.training.program import Node

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 240.0
SMALL = {"context": 16, "layers": 1, "heads": 2, "width": 16, "vocabulary": 257, "compile": False}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a corpus that `gradientmail data` would make of this repository's examples."""
    monkeypatch.chdir(tmp_path)
    make_corpus([EXAMPLES], "*.*", Wish(tmp_path / "corpus", held_out=0.2))
    return tmp_path


def changed(example: str, **changes: dict[str, Any]) -> GradientRun:
    """The example's manifest with these fields of its spec's parts changed."""
    document = yaml.safe_load((EXAMPLES / example).read_text())
    for part, fields in changes.items():
        document["spec"][part].update(fields)
    return run_from_object(document)


def trained(manifest: GradientRun, box: Store) -> list[NodeProgress]:
    """Run the manifest's nodes, one after the other, without its simulated slowness; return their last words."""
    for name in manifest.spec.node_names:
        options = NodeOptions(name, f"{name}-x", "box", slowdown=1.0)
        node = Node(manifest, options, Interruption(30.0), explained, opening=lambda url, s3: box)
        assert node.run() is Exit.OK
    return [NodeProgress.from_json(box.get(left_key(f"{name}-x")) or b"") for name in manifest.spec.node_names]


def count(box: Store, prefix: str) -> int:
    return len(list(box.list(prefix)))


@pytest.mark.timeout(300)
def test_page(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/first"
    command = [sys.executable, str(EXAMPLES / "page/train.py"), "--mailbox", url, "--steps", "5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [
        subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
        for rank in range(2)
    ]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.communicate)
            stack.callback(node.kill)
        printed = [node.communicate(timeout=SECONDS)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert all("of 4 units" in text for text in printed)
    box = open_mailbox(url)
    assert (count(box, "units/"), count(box, "consumed/")) == (4, 4)


@pytest.mark.parametrize(("example", "units"), [("manifest/run.yaml", 8), ("demo/run.yaml", 16)])
def test_manifest(text: Path, example: str, units: int) -> None:
    arguments = {**SMALL, "train": "corpus/train", "held_out": "corpus/held-out"}
    data = {"steps": 4, "batch": 16, "unitSteps": 1}
    manifest = changed(example, data=data, trainer={"args": arguments, "microBatch": 4})
    box = open_mailbox(f"memory:{example}")
    words = trained(manifest, box)
    assert count(box, "consumed/") == units
    assert words[0].held_out_loss is not None


def test_custom_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES / "custom-task")
    monkeypatch.setattr(sys, "path", list(sys.path))
    box = open_mailbox("memory:custom-task")
    first, second = trained(load_manifest("run.yaml"), box)
    assert (first.consumed, second.consumed) == (16, 0)
    assert first.loss is not None
    assert first.loss < 4.2, "guessing any of the 76 characters alike has 4.33"


def test_token_shards(text: Path, s3_server: str, bucket: str) -> None:
    for part, name in (("train", "train_"), ("held-out", "val_")):
        script = [sys.executable, str(EXAMPLES / "token-shards/upload.py"), str(text / "corpus" / part)]
        subprocess.run([*script, f"s3://{bucket}/corpus/{name}", "--endpoint-url", s3_server], check=True)
    manifest = changed(
        "token-shards/run.yaml",
        data={"steps": 3, "batch": 16, "unitSteps": 1, "taper": False},
        mailbox={"url": f"s3://{bucket}/runs", "endpointURL": s3_server},
        trainer={
            "microBatch": 2,
            "args": {
                **SMALL,
                "train": f"s3://{bucket}/corpus/train_*.bin",
                "held_out": f"s3://{bucket}/corpus/val_000000.bin",
                "held_out_sequences": 4,
            },
        },
    )
    box = open_mailbox(f"s3://{bucket}/runs/first", s3=S3Options(endpoint_url=s3_server))
    words = trained(manifest, box)
    assert count(box, "consumed/") == 12
    assert sum(word.consumed for word in words) == 12


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: str(path.parent.name))
def test_every_manifest_is_valid(path: Path) -> None:
    assert load_manifest(path).kind == "GradientRun"
