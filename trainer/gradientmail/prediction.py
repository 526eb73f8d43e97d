"""What a run will do and cost, from its manifest and the nodes' speeds alone. Pure; runs nothing.

Counts of requests are those of an undisturbed run: a claim that another node wins costs a write
and a read more. Those of the exchange depend on when rounds meet, and are estimates. Reads of data
are left out: the task alone knows them. Prices are AWS's list prices; other stores and regions have others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from gradientmail.progress import HEARTBEAT_SECONDS
from gradientmail.run import Data, Spec, Trainer
from gradientmail.simulation import SimulatedNode, Simulation, simulate
from gradientmail.units import Unit

NOTABLE_TAIL = 0.02
"""A tail above this fraction of the ideal is worth advice."""
WORTH_A_CHANGE = 0.5
"""Advice is given if it cuts the tail to this fraction of itself."""
MOST_TRIED_UNITS = 200_000
"""Runs of more units than this are not simulated again for advice: each trial takes seconds."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to the object store by verb."""

    list: int = 0
    put: int = 0
    get: int = 0
    delete: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, verb) + getattr(other, verb) for verb in VERBS))

    def times(self, number: int) -> Requests:
        """Return as many of each, `number` times."""
        return Requests(*(getattr(self, verb) * number for verb in VERBS))

    @property
    def total(self) -> int:
        """Requests of all verbs."""
        return sum(getattr(self, verb) for verb in VERBS)

    def cost(self, prices: Mapping[str, float]) -> float:
        """Return their price, given those of a thousand requests of each verb."""
        return sum((getattr(self, verb) * prices[verb] / 1000 for verb in VERBS), start=0.0)


VERBS = tuple(field.name for field in fields(Requests))

CLAIM = Requests(list=1, put=1, get=1)
RECEIPT = Requests(put=1)
HEARTBEAT = Requests(put=1, delete=1)
NODE = Requests(list=2, put=5, get=2, delete=1)
"""A node's coming and going: the run's manifest, its registration, its last look for work and heartbeat, its model and
farewell."""

LOOKS = 20
"""Listings by which a node looks for rounds between two of them, with the default of pollSeconds."""

S3_PRICES: Mapping[str, float] = {"list": 0.005, "put": 0.005, "get": 0.0004, "delete": 0.0}
"""US dollars for a thousand requests: S3 Standard in us-east-1."""
S3_PRICES_AS_OF = "2025"


@dataclass(frozen=True, slots=True)
class NodePrediction:
    """One node's part."""

    node: str
    speed: float
    """Relative to the fastest node's."""
    units: int
    share: float
    """Of all batches."""
    finished: float
    """When it is done with its last unit."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A run's units, requests, cost and end.

    Times are seconds where `step_seconds` is known, else steps of the fastest node.
    """

    units: int
    batches: int
    nodes: tuple[NodePrediction, ...]
    makespan: float
    ideal: float
    fixed_split: float
    requests: Requests
    """Without heartbeats if `step_seconds` is not known."""
    cost: float
    """US dollars for the requests."""
    exchange: Requests
    """What the parameter exchange adds, an estimate: as if every node took part in each round of each fragment."""
    exchange_cost: float
    """US dollars for that."""
    heartbeats_per_hour: Requests
    step_seconds: float | None
    advice: tuple[str, ...]

    @property
    def tail(self) -> float:
        """Time over the ideal, as a fraction of it."""
        return self.makespan / self.ideal - 1

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            **asdict(self),
            "tail": self.tail,
            "time_unit": "seconds" if self.step_seconds else "fastest_node_steps",
        }


def nodes_of(spec: Spec, speeds: Mapping[str, float]) -> list[SimulatedNode]:
    """Return the nodes of all pools, at each pool's speed."""
    return [
        SimulatedNode.steady(f"{pool.name}-{index}", speeds[pool.name])
        for pool in spec.nodes
        for index in range(pool.replicas)
    ]


def predict(
    spec: Spec,
    speeds: Mapping[str, float],
    *,
    step_seconds: float | None = None,
    prices: Mapping[str, float] = S3_PRICES,
) -> Prediction:
    """Return what comes of the run if each pool's nodes train at its speed.

    Speeds are relative; `step_seconds` is what the fastest node takes for one batch.
    """
    fastest = max(speeds[pool.name] for pool in spec.nodes if pool.replicas)
    relative = {name: speed / fastest for name, speed in speeds.items()}
    nodes = nodes_of(spec, relative)
    units = spec.data.grid()
    result = _simulated(units, nodes, spec.trainer)
    scale = step_seconds or 1.0
    requests = requests_of(len(units), result, step_seconds)
    parts = _node_predictions(units, nodes, result, scale)
    exchange = exchange_requests(spec, most_batches=round(max(part.share for part in parts) * _batches(spec)))
    return Prediction(
        units=len(units),
        batches=_batches(spec),
        nodes=parts,
        makespan=result.makespan * scale,
        ideal=result.ideal * scale,
        fixed_split=result.fixed_split * scale,
        requests=requests,
        cost=requests.cost(prices),
        exchange=exchange,
        exchange_cost=exchange.cost(prices),
        heartbeats_per_hour=HEARTBEAT.times(round(3600 / HEARTBEAT_SECONDS) * len(nodes)),
        step_seconds=step_seconds,
        advice=tuple(_advice(spec, nodes, result)),
    )


def _simulated(units: Mapping[str, Unit], nodes: list[SimulatedNode], trainer: Trainer) -> Simulation:
    return simulate(units, nodes, prefetch=trainer.prefetch, claim_ahead=trainer.claim_ahead)


def requests_of(units: int, result: Simulation, step_seconds: float | None) -> Requests:
    """Return the requests of the run; heartbeats are counted where a step's seconds are known."""
    beats = sum(int(time * (step_seconds or 0.0) / HEARTBEAT_SECONDS) for time in result.finished.values())
    return (CLAIM + RECEIPT).times(units) + NODE.times(len(result.finished)) + HEARTBEAT.times(beats)


def exchange_requests(spec: Spec, *, most_batches: int) -> Requests:
    """Return about how many requests the exchange makes; the node of most batches opens the rounds.

    See docs/protocol.md for what a contributor and a closer do in a round of a fragment.
    """
    exchange, nodes = spec.trainer.exchange, spec.replicas
    if exchange.solo:
        return Requests()
    rounds = most_batches // exchange.sync_every
    blobs = 1 + (exchange.transfer_dtype == "BFloat16") + (exchange.outer_momentum > 0)
    contributor = Requests(list=2, put=2, get=2)
    closer = Requests(list=1, put=blobs + 1, get=2 * (nodes - 1), delete=1)
    looks = Requests(list=LOOKS).times(nodes * rounds)
    return looks + (contributor.times(nodes) + closer).times(exchange.fragments * rounds)


def _batches(spec: Spec) -> int:
    return spec.data.steps * spec.data.lanes


def _node_predictions(
    units: Mapping[str, Unit], nodes: list[SimulatedNode], result: Simulation, scale: float
) -> tuple[NodePrediction, ...]:
    batches = dict.fromkeys(result.units_of, 0)
    for trained in result.units:
        batches[trained.node] += units[trained.identifier].count
    total = sum(batches.values())
    return tuple(
        NodePrediction(
            node=node.name,
            speed=node.speeds[0][1],
            units=result.units_of[node.name],
            share=batches[node.name] / total,
            finished=result.finished[node.name] * scale,
        )
        for node in nodes
    )


def _advice(spec: Spec, nodes: list[SimulatedNode], result: Simulation) -> Iterator[str]:
    idle = sum(count == 0 for count in result.units_of.values())
    if idle:
        yield f"{idle} of {len(nodes)} nodes get no unit: lower unitSteps or run fewer nodes"
    if result.tail <= NOTABLE_TAIL or len(result.units) > MOST_TRIED_UNITS:
        return
    for words, data, trainer in _changes(spec):
        tail = _simulated(data.grid(), nodes, trainer).tail
        if tail <= result.tail * WORTH_A_CHANGE:
            yield f"{words} would end the run {tail:.1%} after the ideal instead of {result.tail:.1%}"
            return
    yield f"the end stays {result.tail:.1%} after the ideal: more steps, or nodes closer in speed, would lower that"


def _changes(spec: Spec) -> Iterator[tuple[str, Data, Trainer]]:
    """Yield changes to try, the cheapest first: what it says, and the parts as changed."""
    data, trainer = spec.data, spec.trainer
    tapered = data.model_copy(update={"taper": True})
    late = trainer.model_copy(update={"claim_ahead": 1})
    smaller = data.model_copy(update={"unit_steps": max(1, data.unit_steps // 4)})
    if not data.taper:
        yield "data.taper: true", tapered, trainer
    if trainer.claim_ahead is None or trainer.claim_ahead > 1:
        yield "trainer.claimAhead: 1", data, late
        if not data.taper:
            yield "data.taper: true with trainer.claimAhead: 1", tapered, late
    if smaller.even_units <= MOST_TRIED_UNITS and data.unit_steps > 1:
        yield f"data.unitSteps: {smaller.unit_steps}", smaller, trainer
        yield (
            f"data.unitSteps: {smaller.unit_steps} with data.taper: true and trainer.claimAhead: 1",
            smaller.model_copy(update={"taper": True}),
            late,
        )
