"""Learners on one store, without tensors: parameters are counts of steps, so that each step can be followed.

Every optimizer step adds a token of its own to the node's parameters. Merging adds deltas, with an
outer learning rate of 1 and no momentum and no mean, so that a token counted twice shows as a 2
and one that was lost as a 0.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from gradientmail.exchange.closing import Timing
from gradientmail.exchange.joining import found_or_read, join
from gradientmail.exchange.keys import RUN, blob_key
from gradientmail.exchange.learner import Learner
from gradientmail.exchange.records import Agreement, Contribution, Founding, TensorShape, Version
from gradientmail.exchange.requests import (
    Adopt,
    Answer,
    Conversation,
    Create,
    Fetch,
    Fetched,
    Found,
    Founded,
    Instruction,
    ListKeys,
    Merge,
    Merging,
    Publish,
    Read,
    Refused,
    Remove,
    Request,
    Take,
    Together,
)

Tokens = Counter[str]

FRAGMENTS = 2
SYNC_EVERY = 3
PATIENCE = 10.0
TAKEOVER = 10.0
AGREEMENT = Agreement(SYNC_EVERY, FRAGMENTS, 1.0, 0.0, "float32")
LAYOUT = tuple((TensorShape(f"weight{index}", (2,), "float32"),) for index in range(FRAGMENTS))


class InUse(ValueError):
    """The learner ID has been used."""


@dataclass
class World:
    """The store, the clock, and the history that the store itself forgets."""

    objects: dict[str, bytes] = field(default_factory=dict)
    clock: float = 0.0
    history: list[dict[int, bytes]] = field(default_factory=lambda: [{} for _ in range(FRAGMENTS)])
    values: list[dict[int, Tokens]] = field(default_factory=lambda: [{0: Counter()} for _ in range(FRAGMENTS)])
    refused: list[Refused] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)

    def newest(self, fragment: int) -> int:
        return max(self.values[fragment])

    def create(self, key: str, data: bytes) -> None:
        if key in self.objects:
            return
        self.objects[key] = data
        if key.endswith("/version"):
            fragment, version = (int(part) for part in key.split("/")[2:4])
            self._closed(Version.from_json(key, data, fragment=fragment, version=version), data)

    def _closed(self, record: Version, data: bytes) -> None:
        history, values = self.history[record.fragment], self.values[record.fragment]
        if record.version in values:
            return  # made anew after its deletion: of no chain, and nobody may adopt it
        assert record.version == max(values) + 1, "versions only advance, one by one"
        value = self.blob(record.fragment, record.version, record.parameters)
        assert value is not None
        assert set(value.values()) <= {1}, "each contribution is merged at most once"
        assert value >= values[record.version - 1], "what was merged stays"
        assert sum(share.steps for share in record.shares.values()) == value.total()
        history[record.version], values[record.version] = data, value

    def write(self, fragment: int, version: int, value: Tokens) -> str:
        data = json.dumps(sorted(value.items())).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.objects.setdefault(blob_key(fragment, version, digest), data)
        return digest

    def blob(self, fragment: int, version: int, digest: str) -> Tokens | None:
        data = self.objects.get(blob_key(fragment, version, digest))
        return None if data is None else Counter(dict(json.loads(data)))


@dataclass
class Node:
    """One learner: its parameters as tokens, and the conversation it is in."""

    world: World
    name: str
    theta: list[Tokens] = field(default_factory=lambda: [Counter() for _ in range(FRAGMENTS)])
    anchors: list[Tokens] = field(default_factory=lambda: [Counter() for _ in range(FRAGMENTS)])
    taken: dict[int, Tokens] = field(default_factory=dict)
    deltas: dict[int, Tokens] = field(default_factory=dict)
    ready: dict[int, tuple[Tokens, Tokens]] = field(default_factory=dict)
    learner: Learner | None = None
    founding: Founding | None = None
    conversation: Conversation[object] | None = None
    request: Request | None = None
    waiting: list[Request] = field(default_factory=list)
    """What was asked together with the request and has not been served yet."""
    answers: list[Answer] | None = None
    """What those that were served have answered; None where one request was asked alone."""
    steps: int = 0
    parting: bool = False
    gone: bool = False
    last: bool | None = None

    # The training thread.

    def train(self) -> None:
        assert self.learner is not None
        self.steps += 1
        for theta in self.theta:
            theta[f"{self.name}:{self.steps}"] += 1
        self.obey(self.learner.stepped(1))

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Take(fragment):
                    self.taken[fragment] = self.theta[fragment].copy()
                case Adopt(fragment, adoption):
                    parameters, correction = self.ready.pop(fragment)
                    self.theta[fragment].update(correction)
                    self.theta[fragment] = Counter({key: n for key, n in self.theta[fragment].items() if n})
                    self.anchors[fragment] = parameters
                    true = self.world.values[fragment].get(adoption.version.version)
                    assert parameters == true, "only versions of the chain are adopted"

    # The background thread.

    def go_on(self, answer: Answer) -> None:
        if self.answers is not None:
            self.answers.append(answer)
            if self.waiting:
                self.request = self.waiting.pop(0)
                return
        answers = answer if self.answers is None else tuple(self.answers)
        if self.conversation is None:
            self.conversation, answers = self._next(), None
        try:
            self._ask(self.conversation.send(answers))
        except StopIteration as end:
            self.conversation = self.request = self.answers = None
            self._ended(end.value)

    def _ask(self, asked: Request | Together) -> None:
        """Serve what is asked together one after the other: other nodes may come in between."""
        if isinstance(asked, Together):
            self.waiting, self.answers = list(asked.requests), []
        else:
            self.waiting, self.answers = [asked], None
        self.request = self.waiting.pop(0)

    def _next(self) -> Conversation[object]:
        if self.founding is None:
            return found_or_read(self.name, AGREEMENT, LAYOUT)
        if self.learner is None:
            return join(self.name, f"process of {self.name}", self.founding, InUse)
        return self.learner.part() if self.parting else self.learner.tick()

    def _ended(self, value: object) -> None:
        match value:
            case Founding():
                self.founding = value
            case tuple():
                self._joined(value)
            case _:
                self._ticked(value is True)

    def _joined(self, anchors: tuple[Version, ...]) -> None:
        assert self.founding is not None
        for anchor in anchors:
            parameters, _ = self.ready.pop(anchor.fragment)
            assert parameters == self.world.values[anchor.fragment][anchor.version]
            self.theta[anchor.fragment], self.anchors[anchor.fragment] = parameters.copy(), parameters
        timing = Timing(PATIENCE, TAKEOVER)
        self.learner = Learner(self.name, self.founding, anchors, timing, lambda: self.world.clock)

    def _ticked(self, value: bool) -> None:
        assert self.learner is not None
        if self.parting:
            self.gone, self.last = True, value
        elif self.learner.leaving:
            self.obey(self.learner.stepped(0))
            self.parting = self.learner.settled

    def answered(self) -> None:
        """Let the pending request be served and go on with its answer."""
        self.go_on(None if self.request is None else self.serve(self.request))

    def tick(self) -> None:
        """Go through whole conversations until nothing more is to be done at once."""
        for _ in range(6):
            self.answered()
            while self.conversation is not None:
                self.answered()

    def serve(self, request: Request) -> Answer:
        self.world.requests[type(request).__name__] += 1
        objects = self.world.objects
        match request:
            case ListKeys(prefix, after):
                return sorted(key for key in objects if key.startswith(prefix) and key > after)
            case Read(key):
                return objects.get(key)
            case Create(key, data):
                self.world.create(key, data)
            case Remove(keys):
                for key in keys:
                    objects.pop(key, None)
            case Found():
                return Founded(tuple(self.world.write(index, 0, Counter()) for index in range(FRAGMENTS)))
            case Fetch():
                return self._fetch(request)
            case Publish(fragment, version):
                self.deltas[fragment] = _minus(self.taken[fragment], self.anchors[fragment])
                return self.world.write(fragment, version, self.deltas[fragment])
            case Merge():
                return self._merge(request)
            case Refused():
                self.world.refused.append(request)
        return None

    def _fetch(self, request: Fetch) -> Fetched:
        fragment = request.version.fragment
        value = self.world.blob(fragment, request.version.version, request.version.parameters)
        if value is None:
            return Fetched(False)
        held = self.anchors[fragment].copy()
        if request.merged:
            held.update(self.deltas[fragment])
        self.ready[fragment] = (value, _minus(value, held))
        return Fetched(True)

    def _merge(self, request: Merge) -> Merging:
        fragment, version = request.anchor.fragment, request.anchor.version + 1
        value = self.anchors[fragment].copy()
        merged: list[Contribution] = []
        for contribution in request.contributions:
            delta = self.world.blob(fragment, version, contribution.delta)
            if delta is not None:
                assert contribution.steps == delta.total()
                value.update(delta)
                merged.append(contribution)
        digest = self.world.write(fragment, version, value)
        gone = {item.learner: "gone" for item in request.contributions if item not in merged}
        return Merging(digest, merged=tuple(merged), refused=gone)

    # What must hold at any moment.

    def check(self) -> None:
        for theta, anchor in zip(self.theta, self.anchors, strict=True):
            own = {f"{self.name}:{step}" for step in range(1, self.steps + 1)}
            assert set(theta.values()) <= {1}, "nothing is counted twice"
            assert own <= theta.keys(), "nothing that was learned is lost"
            assert set(_minus(theta, anchor)) <= own


def _minus(left: Tokens, right: Tokens) -> Tokens:
    difference = left.copy()
    difference.subtract(right)
    return Counter({key: count for key, count in difference.items() if count})


def unmerged(world: World, node: Node) -> set[str]:
    """Return the node's steps that no newest version holds."""
    own = {f"{node.name}:{step}" for step in range(1, node.steps + 1)}
    merged = [world.values[fragment][world.newest(fragment)].keys() for fragment in range(FRAGMENTS)]
    return {token for tokens in merged for token in own - tokens}


__all__ = ["FRAGMENTS", "PATIENCE", "RUN", "SYNC_EVERY", "TAKEOVER", "InUse", "Node", "World", "unmerged"]
