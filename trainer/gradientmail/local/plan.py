"""The command and the environment of each node. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradientmail.leash import LEASH
from gradientmail.local.machine import GPUS
from gradientmail.run import GradientRun

GRACE_SECONDS = 25.0
"""Time that a node has to leave in good order."""

USABLE_SHARE = 0.85
"""Of the cores' time, what nodes can count on beside all else that runs."""

OWN_VARIABLES = "GRADIENTMAIL_"
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class NodePlan:
    """One node: what to start, and where its output goes."""

    node: str
    learner: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    termination_message: Path


def node_plans(
    manifest: GradientRun,
    *,
    manifest_path: Path,
    mailbox: str,
    folder: Path,
    join: bool,
    tokens: Sequence[str],
    cores: int,
    gpus: Sequence[str],
    environment: Mapping[str, str],
    metrics: bool = False,
) -> list[NodePlan]:
    """Return the plan of each node of the manifest; `tokens` make the learner IDs unique, one per node.

    With `metrics`, each node serves its metrics on loopback, at a port that it says in its log.
    """
    names = manifest.spec.node_names
    base = inherited(environment, threads=max(1, cores // len(names)))
    slowdowns = simulated_slowdowns(manifest, cores=None if gpus else cores)
    plans = []
    for index, (node, token) in enumerate(zip(names, tokens, strict=True)):
        gpu = {GPUS: gpus[index % len(gpus)]} if gpus else {}
        message = folder / f"{node}.json"
        learner = f"{node}-{token}"
        arguments = _arguments(node, learner, manifest_path, mailbox, message, join)
        if metrics:
            arguments += ("--metrics-port", "0", "--metrics-host", "127.0.0.1")
        if slowdowns:
            arguments += ("--slowdown", f"{slowdowns[index]:.4g}")
        plans.append(NodePlan(node, learner, arguments, base | gpu, folder / f"{node}.log", message))
    return plans


def simulated_slowdowns(manifest: GradientRun, *, cores: int | None) -> list[float]:
    """Return how many times slower each node is to be; empty if the manifest simulates no speeds.

    On a CPU (`cores` is not None) nodes compete for cores, and a node that is to run at full speed would lose the
    most. So all are slowed alike until the cores have room for them: their ratios then hold.
    """
    if all(pool.simulated_speed is None for pool in manifest.spec.nodes):
        return []
    speeds = manifest.spec.relative_speeds
    wanted = [speeds[pool.name] for pool in manifest.spec.nodes for _ in range(pool.replicas)]
    crowding = 1.0 if cores is None else max(1.0, sum(wanted) / (USABLE_SHARE * cores))
    return [crowding / speed for speed in wanted]


def inherited(environment: Mapping[str, str], *, threads: int) -> dict[str, str]:
    """Return a node's environment: this process's, without settings meant for a node in a pod."""
    kept = {name: value for name, value in environment.items() if not name.startswith(OWN_VARIABLES)}
    return {THREADS: str(threads), **kept, LEASH: f"{GRACE_SECONDS:g}"}


def _arguments(node: str, learner: str, manifest: Path, mailbox: str, message: Path, join: bool) -> tuple[str, ...]:
    options = {
        "--node": node,
        "--learner-id": learner,
        "--mailbox": mailbox,
        "--log-format": "json",
        "--termination-message": str(message),
        "--grace-seconds": f"{GRACE_SECONDS:g}",
    }
    pairs = [part for option in options.items() for part in option]
    flags = ["--join"] if join else []
    return (sys.executable, "-m", "gradientmail", "train", str(manifest), *pairs, *flags)
