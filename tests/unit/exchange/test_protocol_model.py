"""Any interleaving of learners, crashes and lost answers: each step merged at most once, none forgotten."""

from __future__ import annotations

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gradientmail.exchange.chain import KEPT_VERSIONS
from tests.unit.exchange.model import FRAGMENTS, PATIENCE, TAKEOVER, Node, World, unmerged

CHOICE = strategies.integers(0, 1000)
MOST_NODES = 6


class Exchanges(RuleBasedStateMachine):
    """Learners on one store; each rule is one event at one of them, or a stretch of plain running."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.nodes: list[Node] = []
        self.made = 0
        self.crashed = False

    @initialize(count=strategies.integers(1, 4))
    def start(self, count: int) -> None:
        for _ in range(count):
            self.join()

    @precondition(lambda self: self.made < MOST_NODES)
    @rule()
    def join(self) -> None:
        self.nodes.append(Node(self.world, f"node-{self.made}"))
        self.made += 1

    @rule(choice=CHOICE, count=strategies.integers(1, 4))
    def trains(self, choice: int, count: int) -> None:
        if node := self._any(choice, [node for node in self.nodes if _trains(node)]):
            for _ in range(count):
                node.train()

    @rule(choice=CHOICE, count=strategies.integers(1, 9))
    def answered(self, choice: int, count: int) -> None:
        if node := self._any(choice, self.nodes):
            for _ in range(count):
                if not node.gone:
                    node.answered()

    @rule(choice=CHOICE)
    def answer_lost(self, choice: int) -> None:
        node = self._any(choice, self.nodes)
        if node and node.request is not None:
            node.serve(node.request)  # it reached the store; the node knows nothing and repeats it

    @rule(choice=CHOICE, landed=strategies.booleans())
    def crash(self, choice: int, landed: bool) -> None:
        if len(self.nodes) < 2:
            return
        node = self._any(choice, self.nodes)
        assert node is not None
        if landed and node.request is not None:
            node.serve(node.request)
        self.nodes.remove(node)
        self.crashed = True

    @rule(seconds=strategies.sampled_from([1.0, PATIENCE, PATIENCE + TAKEOVER, 10 * PATIENCE]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock += seconds

    @rule(asleep=CHOICE, rounds=strategies.integers(1, 25))
    def others_run(self, asleep: int, rounds: int) -> None:
        """Everyone but one, who sleeps in the middle of whatever it was doing."""
        self._run([node for node in self.nodes if node is not self._any(asleep, self.nodes)], rounds)

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(choice=CHOICE)
    def leave(self, choice: int) -> None:
        if node := self._any(choice, [node for node in self.nodes if _trains(node)]):
            assert node.learner is not None
            node.learner.leaving = True

    @invariant()
    def each_step_once(self) -> None:
        for node in self.nodes:
            node.check()

    @invariant()
    def what_left_is_merged(self) -> None:
        for node in [node for node in self.nodes if node.gone]:
            assert not unmerged(self.world, node)
            self.nodes.remove(node)

    def teardown(self) -> None:
        if not self.nodes:
            return
        self._goes_on_without(self.nodes[:-1] if len(self.nodes) > 1 else self.nodes)
        self._all_leave()

    def _goes_on_without(self, awake: list[Node]) -> None:
        """One node sleeps for good: the others' steps are merged all the same, and old objects go."""
        self._run(awake, 4)  # those that were joining have joined
        before = [self.world.newest(fragment) for fragment in range(FRAGMENTS)]
        made = [(node, set(node.theta[0])) for node in awake if _trains(node)]
        self._run(awake, 40)
        if not any(_trains(node) for node in awake):
            return
        for fragment, version in enumerate(before):
            newest = self.world.newest(fragment)
            assert newest > version + KEPT_VERSIONS
            for node, steps in made:
                own = {step for step in steps if step.startswith(f"{node.name}:")}
                assert own <= self.world.values[fragment][newest].keys()
            kept = {key for key in self.world.objects if f"/{fragment:04d}/" in key}
            assert {key for key in kept if int(key.split("/")[3]) < newest - KEPT_VERSIONS} == set()

    def _all_leave(self) -> None:
        for node in self.nodes:
            while node.learner is None:
                node.answered()
            node.learner.leaving = True
        for _ in range(60):
            self.world.clock += PATIENCE
            for node in self.nodes:
                if not node.gone:
                    node.answered()
                while node.conversation is not None:
                    node.answered()
        for node in self.nodes:
            assert node.gone, "a learner can leave whatever the others do"
            assert not unmerged(self.world, node)
        if not self.crashed:  # one that died just now cannot be told from one that is slow
            assert any(node.last for node in self.nodes)

    def _run(self, nodes: list[Node], rounds: int) -> None:
        for _ in range(rounds):
            self.world.clock += PATIENCE / 2
            for node in nodes:
                if not node.gone:
                    if _trains(node):
                        node.train()
                    node.answered()
                    while node.conversation is not None:
                        node.answered()

    @staticmethod
    def _any(choice: int, nodes: list[Node]) -> Node | None:
        return nodes[choice % len(nodes)] if nodes else None


def _trains(node: Node) -> bool:
    return node.learner is not None and not node.learner.leaving


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=150, stateful_step_count=50)
