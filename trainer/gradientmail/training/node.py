"""One node's part of a run, from the manifest alone: which node, which units first, how slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradientmail.exits import UserError
from gradientmail.layout import check_learner_id
from gradientmail.mailbox import InvalidKey
from gradientmail.run import GradientRun
from gradientmail.training.logs import LogFormat
from gradientmail.training.slowness import Slowness
from gradientmail.units import Unit, first_lane


@dataclass(frozen=True)
class NodeOptions:
    """What a node is told besides the manifest."""

    node: str
    """`{pool}-{index}`."""
    learner_id: str
    """Unique to this process under the prefix."""
    mailbox: str
    """URL of the run's own prefix."""
    namespace: str | None = None
    """For the metrics; None for the manifest's."""
    metrics_port: int | None = None
    """0 for any free port, None for none at all."""
    metrics_host: str = ""
    """Address of this machine to serve them at; empty: every address of the machine."""
    log_format: LogFormat = "text"
    termination_message: Path | None = None
    grace_seconds: float = 25.0
    join: bool = False
    """Take part in whatever run with the same data grid the prefix holds."""
    slowdown: float | None = None
    """How many times slower than it is the node is to be; None for what the manifest's simulatedSpeed asks for."""


@dataclass(frozen=True)
class Place:
    """Where a node stands among the run's nodes."""

    pool: str
    ordinal: int
    """Position over all pools, in the manifest's order."""


def place_of(manifest: GradientRun, node: str) -> Place:
    """Return where `{pool}-{index}` stands. An index beyond the replicas is a node added later. Raises UserError."""
    pool, _, index = node.rpartition("-")
    before = 0
    for each in manifest.spec.nodes:
        if each.name == pool and index.isdecimal():
            return Place(pool, before + int(index))
        before += each.replicas
    pools = ", ".join(repr(each.name) for each in manifest.spec.nodes)
    raise UserError(f"node {node!r} is not of this run: nodes are named {{pool}}-{{index}}, and the pools are {pools}")


def preference(units: Mapping[str, Unit], place: Place, lanes: int) -> dict[str, Unit]:
    """Return the units in the order in which a node at this place claims them."""
    return first_lane(units, place.ordinal % lanes)


def slowness(manifest: GradientRun, place: Place, asked: float | None) -> Slowness:
    """Return how slow a node is to be: as asked, or as the manifest's simulated speeds say.

    What was asked for a pool with a simulated speed may slow the fastest pool too: its factor is the headroom.
    """
    speed = manifest.spec.relative_speeds[place.pool]
    if asked is None:
        return Slowness(1.0 / speed)
    simulated = any(pool.simulated_speed for pool in manifest.spec.nodes)
    return Slowness(asked, max(1.0, asked * speed) if simulated else 1.0)


def check_learner(learner_id: str) -> str:
    """Return the learner ID. Raises UserError if a store could not hold it."""
    try:
        check_learner_id(learner_id)
    except InvalidKey as error:
        raise UserError(str(error)) from None
    return learner_id
