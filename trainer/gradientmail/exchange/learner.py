"""The exchange protocol of one learner without its I/O, its numbers and its threads.

`stepped` is called by the training thread and returns at once; `tick` is a conversation that the
background thread drives over a mailbox, again and again, in which fragments go side by side. Tests
drive many learners at once, in any order, with crashes and lost answers in between. The caller sees
to it that no two calls run at the same time; between two requests of a conversation, `stepped` may
run any number of times.

Safety rests on two facts of the store alone: an object is created at most once, and a listing
shows every object created before it. No learner waits for another: a round is closed once all
have contributed or patience has run out, by whoever is next in turn.
"""

from __future__ import annotations

from collections.abc import Callable

from gradientmail.exchange.chain import KEPT_VERSIONS, Chain
from gradientmail.exchange.closing import Timing, due_to_close, last_seen
from gradientmail.exchange.keys import (
    EXCHANGE,
    STATE_AFTER,
    blob_version,
    contribution_key,
    fragment_blobs,
    member_key,
    version_key,
)
from gradientmail.exchange.records import (
    Contribution,
    Founding,
    Member,
    RecordRefused,
    Version,
    Work,
    shares_after,
)
from gradientmail.exchange.requests import (
    Adopt,
    Conversation,
    Create,
    Fetch,
    Fetched,
    Instruction,
    ListKeys,
    Merge,
    Merging,
    Publish,
    Read,
    Refused,
    Remove,
    Take,
    in_turn,
    reading,
    together,
)
from gradientmail.exchange.view import Rounds, View, view_of


class Learner:
    """One learner that has joined: its chains, its work, and who else takes part."""

    def __init__(
        self,
        learner: str,
        founding: Founding,
        anchors: tuple[Version, ...],
        timing: Timing,
        clock: Callable[[], float],
        side_by_side: bool = True,
    ) -> None:
        """side_by_side: whether fragments' rounds go on at the same time, or one after the other."""
        self.learner = learner
        self.work = Work()
        self.leaving = False
        sync_every, count = founding.agreement.sync_every, len(founding.layout)
        self.chains = tuple(
            Chain(anchor, sync_every, sync_every - max(1, sync_every * (index + 1) // count))
            for index, anchor in enumerate(anchors)
        )
        self.timing = timing
        self._clock = clock
        self._side_by_side = side_by_side
        self._joined: dict[str, tuple[int, ...]] = {}
        self._told: set[str] = set()

    # On the training thread.

    def stepped(self, samples: int) -> list[Instruction]:
        """Count a step over `samples` (0: none was made); return what to do with the parameters, in order."""
        if samples:
            self.work = Work(self.work.steps + 1, self.work.samples + samples)
        return [
            instruction for index, chain in enumerate(self.chains) for instruction in self._instructions(index, chain)
        ]

    def _instructions(self, index: int, chain: Chain) -> list[Instruction]:
        found: list[Instruction] = []
        if chain.offer:
            found.append(Adopt(index, chain.adopt(self.learner, self.work)))
        if chain.due(self.work) or (self.leaving and chain.due_at_last(self.work)):
            chain.take(self.work)
            found.append(Take(index, chain.next_version))
        return found

    @property
    def settled(self) -> bool:
        """Whether all work of this learner is in versions that it has adopted."""
        return not any(chain.unmerged(self.work).steps or chain.offer for chain in self.chains)

    # On the background thread.

    def tick(self) -> Conversation[bool]:
        """Look at the run once and do what is due; return whether to look again at once."""
        view = yield from listing(len(self.chains))
        yield from self._meet(view)
        each = zip(self.chains, view.fragments, strict=True)
        rounds = [self._advance(chain, rounds, view.members) for chain, rounds in each]
        acted = yield from (together if self._side_by_side else in_turn)(rounds)
        return any(acted)

    def part(self) -> Conversation[bool]:
        """Stop being a member; return whether nobody else seems to be left."""
        yield Remove((member_key(self.learner),))
        view = yield from listing(len(self.chains))
        yield from self._meet(view)
        others = view.members - {self.learner}
        return not any(
            self._active(name, chain, rounds)
            for chain, rounds in zip(self.chains, view.fragments, strict=True)
            for name in others
        )

    def _active(self, name: str, chain: Chain, rounds: Rounds) -> bool:
        """Whether the learner has shown itself since the round that made the anchor was opened."""
        seen = last_seen(name, chain.anchor, self._joined_at(chain.anchor.fragment))
        contributed = any(name in names for version, names in rounds.contributors.items() if version > rounds.newest)
        return contributed or (seen is not None and seen >= chain.anchor.version)

    def _meet(self, view: View) -> Conversation[None]:
        """Learn from where the members that are new to this learner have started."""
        for key in view.foreign:
            yield from self._tell(key, "no exchange writes such a key")
        for name in sorted(view.members - self._joined.keys()):
            key = member_key(name)
            data = yield Read(key)
            try:
                self._joined[name] = Member.from_json(key, data).joined if isinstance(data, bytes) else ()
            except RecordRefused as why:
                self._joined[name] = ()
                yield from self._tell(key, str(why))
        for name in self._joined.keys() - view.members:
            del self._joined[name]

    def _joined_at(self, index: int) -> dict[str, int]:
        return {name: joined[index] for name, joined in self._joined.items() if len(joined) == len(self.chains)}

    def _advance(self, chain: Chain, rounds: Rounds, members: frozenset[str]) -> Conversation[bool]:
        contributors = rounds.contributors.get(rounds.newest + 1, frozenset())
        chain.seen(rounds.newest, bool(contributors), self._clock())
        if chain.confirmed(rounds.newest):
            return False
        if rounds.newest > chain.held:
            return (yield from self._fetch(chain, rounds.newest))
        if rounds.newest > chain.anchor.version or chain.taken is None:
            return False
        if not chain.taken.contributed:
            return (yield from self._contribute(chain))
        if self._closes(chain, contributors, members):
            return (yield from self._close(chain, rounds, contributors))
        return False

    def _closes(self, chain: Chain, contributors: frozenset[str], members: frozenset[str]) -> bool:
        if self.learner not in contributors:
            return False
        joined = self._joined_at(chain.anchor.fragment)
        waited = self._clock() - chain.open_since
        return due_to_close(self.learner, chain.anchor, contributors, members, joined, waited, self.timing)

    def _fetch(self, chain: Chain, newest: int) -> Conversation[bool]:
        if newest in chain.refused:
            return False
        chain.offer = None  # what replaces it is made from the anchor, which must not move meanwhile
        key = version_key(chain.anchor.fragment, newest)
        data = yield Read(key)
        if not isinstance(data, bytes):
            return False
        try:
            version = Version.from_json(key, data, fragment=chain.anchor.fragment, version=newest)
        except RecordRefused as why:
            chain.refused.add(newest)
            yield from self._tell(key, str(why))
            return False
        fetched = yield Fetch(version, chain.anchor, chain.merges_taken(version, self.learner))
        assert isinstance(fetched, Fetched)
        if fetched.ready:
            chain.fetched = version
        elif fetched.problem:
            chain.refused.add(newest)
            yield from self._tell(key, fetched.problem)
        return fetched.ready

    def _contribute(self, chain: Chain) -> Conversation[bool]:
        taken, fragment = chain.taken, chain.anchor.fragment
        assert taken is not None
        digest = yield Publish(fragment, taken.version)
        assert isinstance(digest, str)
        work = taken.work.since(chain.merged)
        record = Contribution(self.learner, fragment, taken.version, digest, work.steps, work.samples, self.leaving)
        yield Create(contribution_key(fragment, taken.version, self.learner), record.to_json())
        taken.contributed = True
        return True

    def _close(self, chain: Chain, rounds: Rounds, contributors: frozenset[str]) -> Conversation[bool]:
        anchor, refused = chain.anchor, dict[str, str]()
        contributions: list[Contribution] = []
        names = sorted(contributors)
        keys = [contribution_key(anchor.fragment, chain.next_version, name) for name in names]
        found = yield from together([reading(key) for key in keys])
        for name, key, data in zip(names, keys, found, strict=True):
            if data is None:
                return False
            try:
                contributions.append(_contribution(key, data, name, anchor))
            except RecordRefused as why:
                refused[name] = str(why)
                yield from self._tell(key, str(why))
        merging = yield Merge(anchor, tuple(contributions))
        assert isinstance(merging, Merging)
        for name, problem in merging.refused.items():
            yield from self._tell(contribution_key(anchor.fragment, chain.next_version, name), problem)
        version = self._closed(anchor, merging, refused)
        yield Create(version_key(anchor.fragment, version.version), version.to_json())
        yield from _sweep(anchor.fragment, rounds)
        return True

    def _closed(self, anchor: Version, merging: Merging, refused: dict[str, str]) -> Version:
        return Version(
            fragment=anchor.fragment,
            version=anchor.version + 1,
            closer=self.learner,
            parameters=merging.parameters,
            momentum=merging.momentum,
            step=merging.step,
            merged=tuple(contribution.learner for contribution in merging.merged),
            refused={**refused, **merging.refused},
            shares=shares_after(anchor, merging.merged),
        )

    def _tell(self, key: str, why: str) -> Conversation[None]:
        if key not in self._told:
            self._told.add(key)
            yield Refused(key, why)


def listing(fragments: int) -> Conversation[View]:
    """List who takes part and how every round stands."""
    keys = yield ListKeys(EXCHANGE, STATE_AFTER)
    assert isinstance(keys, list)
    return view_of(keys, fragments)


def _contribution(key: str, data: bytes, learner: str, anchor: Version) -> Contribution:
    return Contribution.from_json(key, data, learner=learner, fragment=anchor.fragment, version=anchor.version + 1)


def _sweep(fragment: int, rounds: Rounds) -> Conversation[None]:
    """Delete what no learner can need: everything of versions far behind, also what crashed learners have left."""
    oldest = rounds.newest - KEPT_VERSIONS
    if oldest < 0:
        return
    blobs = yield ListKeys(fragment_blobs(fragment))
    assert isinstance(blobs, list)
    old = [key for key in blobs if (version := blob_version(key)) is not None and version <= oldest]
    if keys := (*rounds.behind(oldest), *old):
        yield Remove(tuple(keys))
