"""The study of docs/exchange.md: held-out loss of a small GPT with and without exchange, on nodes at 4:2:2:1.

    .venv/bin/python -m bench.exchange.study --seeds 0 1 2 --out results.jsonl

Each run is a line of JSON: its name, its options, and the curve (virtual seconds, samples, held-out loss).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bench.exchange.corpus import Corpus
from bench.exchange.nodes import Clock, Network, SimulatedNode, newest
from bench.exchange.tiny import Tiny
from gradientmail.exchange.blobs import split
from gradientmail.exchange.closing import Timing
from gradientmail.exchange.merging import mean, outer_step
from gradientmail.exchange.parameters import Parameters
from gradientmail.exchange.records import Agreement
from gradientmail.mailbox.memory import MemoryStore

CONTEXT, WIDTH = 32, 32
LANES, SHARE, UNIT_STEPS = 4, 16, 5
HELD_OUT = 1024
POINTS = 16
UNEQUAL = (1.0, 2.0, 2.0, 4.0)
EQUAL = (16 / 9,) * 4
"""The same samples per second in all."""


@dataclass(frozen=True)
class Setting:
    """One run's choices."""

    seed: int = 0
    steps: int = 1500
    lr: float = 8e-3
    sync_every: int = 20
    fragments: int = 4
    outer_lr: float = 1.0
    outer_momentum: float = 0.5
    transfer_dtype: str = "bfloat16"
    patience: float = 20.0
    takeover: float = 20.0
    latency: float = 0.02
    poll: float = 0.5


@dataclass
class Curve:
    """Held-out loss as a run goes on."""

    corpus: Corpus
    setting: Setting
    points: list[tuple[float, int, float]]
    samples: int = 0

    def evaluate(self, model: nn.Module, seconds: float, parameters: dict[str, Tensor] | None = None) -> None:
        tokens = self.corpus.held_out(HELD_OUT)
        with torch.no_grad():
            loss = functional_call(model, parameters, (tokens,)) if parameters else model(tokens)
        self.points.append((round(seconds, 3), self.samples, float(loss)))

    @property
    def every(self) -> int:
        return self.setting.steps * LANES * SHARE // POINTS

    def due(self) -> bool:
        return self.samples // self.every >= len(self.points)


def learning_rate(setting: Setting, step: int) -> float:
    warm = min(1.0, (step + 1) / 100)
    return setting.lr * warm * (0.05 + 0.95 * (1 + math.cos(math.pi * step / setting.steps)) / 2)


def model_and_optimizer(setting: Setting) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(setting.seed)
    model = Tiny(CONTEXT, WIDTH)
    return model, torch.optim.AdamW(model.parameters(), lr=setting.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)


def optimizing(setting: Setting) -> Callable[[nn.Module, torch.optim.Optimizer, int, Tensor], None]:
    def optimize(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, batch: Tensor) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(setting, step)
        model(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return optimize


def batch(corpus: Corpus, setting: Setting, step: int, lane: int, lanes: int = 1) -> Tensor:
    return corpus.sequences((step * LANES + lane) * SHARE, SHARE * lanes, setting.seed)


def queue(corpus: Corpus, setting: Setting) -> Callable[[], Iterator[tuple[int, Tensor]]]:
    """Return what gives each node its own iterator over units that all nodes share."""
    units = itertools.product(range(0, setting.steps, UNIT_STEPS), range(LANES))

    def batches() -> Iterator[tuple[int, Tensor]]:
        for first, lane in units:
            for step in range(first, min(first + UNIT_STEPS, setting.steps)):
                yield step, batch(corpus, setting, step, lane)

    return batches


def data_parallel(corpus: Corpus, setting: Setting) -> Curve:
    """(a) Every step averages the gradients of the four lanes; it takes as long as the slowest node."""
    curve = Curve(corpus, setting, [])
    model, optimizer = model_and_optimizer(setting)
    optimize = optimizing(setting)
    curve.evaluate(model, 0.0)
    for step in range(setting.steps):
        optimize(model, optimizer, step, batch(corpus, setting, step, 0, LANES))
        curve.samples += SHARE * LANES
        if curve.due():
            curve.evaluate(model, (step + 1) * max(UNEQUAL))
    return curve


def synchronous(corpus: Corpus, setting: Setting) -> Curve:
    """(b) DiLoCo: a lane per node, all in step, merged every `sync_every` steps; as slow as the slowest node."""
    curve = Curve(corpus, setting, [])
    nodes = [model_and_optimizer(setting) for _ in range(LANES)]
    parameters = [Parameters(model, 1) for model, _ in nodes]
    theta = parameters[0].to_host(parameters[0].copied(0))
    momentum = torch.zeros_like(theta)
    optimize = optimizing(setting)
    curve.evaluate(nodes[0][0], 0.0)
    for step in range(setting.steps):
        for lane, (model, optimizer) in enumerate(nodes):
            optimize(model, optimizer, step, batch(corpus, setting, step, lane))
        curve.samples += SHARE * LANES
        if (step + 1) % setting.sync_every == 0 or step + 1 == setting.steps:
            gradient = mean(((theta - item.to_host(item.copied(0)), 1) for item in parameters), theta)
            assert gradient is not None
            lr, mu = setting.outer_lr, setting.outer_momentum
            theta, momentum, _ = outer_step(theta, momentum, gradient, lr=lr, mu=mu, transfer=torch.float32)
            for item in parameters:
                item.load(0, item.to_device(0, theta))
            if curve.due():
                curve.evaluate(nodes[0][0], (step + 1) * max(UNEQUAL), dict(split(theta, parameters[0].layout[0])))
    return curve


@dataclass(frozen=True)
class Life:
    """One node of a run: its speed, and when it joins and dies as shares of the run's length."""

    step_seconds: float
    joins: float = 0.0
    dies: float = math.inf


def exchanged(corpus: Corpus, setting: Setting, lives: list[Life]) -> tuple[Curve, dict[str, object]]:
    """(c), (d), (e) The session, in virtual time."""
    curve = Curve(corpus, setting, [])
    clock, store, batches = Clock(), MemoryStore(), queue(corpus, setting)
    length = setting.steps * LANES / sum(1 / life.step_seconds for life in lives if life.joins == 0)
    agreement = Agreement(
        setting.sync_every, setting.fragments, setting.outer_lr, setting.outer_momentum, setting.transfer_dtype
    )
    nodes: list[SimulatedNode] = []
    evaluated, _ = model_and_optimizer(setting)
    curve.evaluate(evaluated, 0.0)
    most = 0

    def trained(rows: Tensor) -> None:
        nonlocal most
        curve.samples += len(rows)
        if curve.due():
            curve.evaluate(evaluated, clock.now, newest(nodes))
            most = max(most, sum(1 for _ in store.list()))

    def start(index: int, life: Life) -> None:
        model, optimizer = model_and_optimizer(setting)
        node = SimulatedNode(
            name=f"node-{index}",
            clock=clock,
            store=store,
            model=model,
            optimizer=optimizer,
            agreement=agreement,
            step_seconds=life.step_seconds,
            work=batches(),
            optimize=optimizing(setting),
            network=Network(setting.latency, setting.poll),
            timing=Timing(setting.patience, setting.takeover),
            dies_at=life.dies * length,
            trained=trained,
        )
        nodes.append(node)

    for index, life in enumerate(lives):
        clock.after(life.joins * length, lambda index=index, life=life: start(index, life))  # type: ignore[misc]
    clock.run()
    curve.evaluate(evaluated, clock.now, newest(nodes))
    versions = [chain.anchor.version for node in nodes if node.left and node.learner for chain in node.learner.chains]
    return curve, {
        "versions": max(versions),
        "node_steps": [node.steps for node in nodes],
        "staleness": [sum(node.staleness) / max(1, len(node.staleness)) for node in nodes],
        "sent": [node.blobs.sent_bytes for node in nodes],
        "received": [node.blobs.received_bytes for node in nodes],
        "most_objects": most,
    }


def alone(corpus: Corpus, setting: Setting, speeds: tuple[float, ...]) -> Curve:
    """(f), (g) The fastest of four nodes that share the queue and nothing else; samples are those of all four."""
    curve = Curve(corpus, setting, [])
    model, optimizer = model_and_optimizer(setting)
    optimize = optimizing(setting)
    curve.evaluate(model, 0.0)
    clock, next_free = 0.0, [0.0] * len(speeds)
    for first, lane in itertools.product(range(0, setting.steps, UNIT_STEPS), range(LANES)):
        node = min(range(len(speeds)), key=lambda index: (next_free[index], index))
        next_free[node] += UNIT_STEPS * speeds[node]
        for step in range(first, first + UNIT_STEPS):
            curve.samples += SHARE
            if node == 0:
                clock += speeds[0]
                optimize(model, optimizer, step, batch(corpus, setting, step, lane))
        if curve.due():
            curve.evaluate(model, clock)
    curve.evaluate(model, clock)
    return curve


LIVES: dict[str, list[Life]] = {
    "c": [Life(seconds) for seconds in EQUAL],
    "d": [Life(seconds) for seconds in UNEQUAL],
    "e": [
        Life(1.0),
        Life(2.0, dies=0.3),
        Life(2.0),
        Life(4.0, dies=0.6),
        Life(2.0, joins=0.4),
        Life(4.0, joins=0.7),
    ],
}


def run(name: str, corpus: Corpus, setting: Setting) -> dict[str, Any]:
    """Run one variant; return its line of results."""
    start, extra = time.process_time(), dict[str, object]()
    match name:
        case "a":
            curve = data_parallel(corpus, setting)
        case "b":
            curve = synchronous(corpus, setting)
        case "f":
            curve = alone(corpus, setting, UNEQUAL)
        case "g":
            curve = alone(corpus, setting, EQUAL)
        case _:
            curve, extra = exchanged(corpus, setting, LIVES[name])
    cost = round(time.process_time() - start, 1)
    return {"name": name, **asdict(setting), "points": curve.points, "cpu_seconds": cost, **extra}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", default=list("abcdefg"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], help="NAME=VALUE of Setting")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus(CONTEXT)
    types = {name: type(value) for name, value in asdict(Setting()).items()}
    chosen = {name: types[name](value) for name, _, value in (item.partition("=") for item in arguments.set)}
    for seed, name in itertools.product(arguments.seeds, arguments.runs):
        result = run(name, corpus, Setting(**{**chosen, "seed": seed}))
        with arguments.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(
            name, seed, chosen, "held-out", round(result["points"][-1][2], 4), "cpu", result["cpu_seconds"], flush=True
        )


if __name__ == "__main__":
    main()
