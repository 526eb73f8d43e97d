"""Any interleaving of nodes, crashes and lost answers: one owner per unit, and none forgotten while a node lives."""

from collections.abc import Generator
from dataclasses import dataclass, field

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gradientmail import first_lane, grid
from gradientmail.patterns import claiming
from gradientmail.patterns.claiming import Answer, Claim, Create, ListClaims, ReadBack, Step, claim_steps
from gradientmail.patterns.ledger import Ledger

UNITS = grid(steps=5, unit_steps=1, lanes=3)


@dataclass
class Node:
    """One learner in the middle of its claim: the request it has out, and what it believes to own."""

    name: str
    ledger: Ledger
    owned: list[str] = field(default_factory=list)
    steps: Generator[Step, Answer, Claim] | None = None
    request: Step | None = None
    done: bool = False

    def go_on(self, answer: Answer) -> None:
        if self.steps is None:
            self.steps = claim_steps(self.ledger, self.name)
            answer = None
        try:
            self.request = self.steps.send(answer)
        except StopIteration as end:
            self.steps, self.request = None, None
            self._ended(end.value)

    def _ended(self, claim: Claim) -> None:
        if claim.identifier is None:
            self.done = True
        else:
            self.owned.append(claim.identifier)


class Claims(RuleBasedStateMachine):
    """Nodes on one store; each rule is one event at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.dead: list[Node] = []
        self.page = claiming.PAGE
        claiming.PAGE = 4  # listings of several pages, as a large run has them

    @initialize(count=strategies.integers(1, 4))
    def start(self, count: int) -> None:
        for index in range(count):
            self.join(index)

    @precondition(lambda self: len(self.nodes) + len(self.dead) < 7)
    @rule(lane=strategies.integers(0, 2))
    def join(self, lane: int) -> None:
        name = f"node-{len(self.nodes) + len(self.dead)}"
        self.nodes.append(Node(name, Ledger(first_lane(UNITS, lane))))

    @precondition(lambda self: self.nodes)
    @rule(choice=strategies.randoms(use_true_random=False))
    def answered(self, choice: object) -> None:
        node = self._any(choice)
        node.go_on(None if node.request is None else self._served(node, node.request))

    @precondition(lambda self: self.nodes)
    @rule(choice=strategies.randoms(use_true_random=False))
    def answer_lost(self, choice: object) -> None:
        node = self._any(choice)
        if node.request is not None:
            self._served(node, node.request)  # it reached the store; the node knows nothing and will repeat it

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(choice=strategies.randoms(use_true_random=False), landed=strategies.booleans())
    def crash(self, choice: object, landed: bool) -> None:
        node = self._any(choice)
        if landed and node.request is not None:
            self._served(node, node.request)
        self.nodes.remove(node)
        self.dead.append(node)

    @invariant()
    def one_owner(self) -> None:
        for node in self.nodes + self.dead:
            assert [self.store[identifier] for identifier in node.owned] == [node.name] * len(node.owned)

    @invariant()
    def done_means_all_owned(self) -> None:
        if any(node.done for node in self.nodes):
            assert set(self.store) == set(UNITS)

    def teardown(self) -> None:
        for node in self.nodes:
            for _ in range(400):
                if node.done:
                    break
                node.go_on(None if node.request is None else self._served(node, node.request))
            assert node.done
        if self.nodes:
            assert set(self.store) == set(UNITS)
            believed = [identifier for node in self.nodes for identifier in node.owned]
            alive = {node.name for node in self.nodes}
            assert sorted(believed) == sorted(unit for unit, owner in self.store.items() if owner in alive)
        claiming.PAGE = self.page

    def _any(self, choice: object) -> Node:
        return choice.choice(self.nodes)  # type: ignore[attr-defined,no-any-return]

    def _served(self, node: Node, request: Step) -> Answer:
        match request:
            case ListClaims(after):
                return [identifier for identifier in sorted(self.store) if identifier > after][: claiming.PAGE]
            case Create(identifier):
                self.store.setdefault(identifier, node.name)
                return None
            case ReadBack(identifier):
                return self.store.get(identifier)


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=200, stateful_step_count=80)
