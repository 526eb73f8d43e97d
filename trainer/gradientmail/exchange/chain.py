"""One fragment's chain of versions as one learner sees it: what it has adopted, offered and kept for itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradientmail.exchange.records import Version, Work

KEPT_VERSIONS = 3
"""Versions up to the newest minus this may be deleted, never later ones."""


@dataclass(slots=True)
class Taken:
    """The learner's parameters as copied for one round. `version` is the one that the round makes."""

    version: int
    work: Work
    """The learner's cumulative work at that moment."""
    contributed: bool = False
    """Whether the contribution's record has been written."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A version that the training thread has taken over."""

    version: Version
    merged: bool
    """Whether the version holds the learner's pending contribution."""
    missed: bool
    """Whether a contribution was pending that the version does not hold."""
    skipped: int
    """Versions passed over since the one before."""
    staleness: int
    """The learner's own steps since the parameters it had contributed, or since its last adoption."""


@dataclass(slots=True)
class Chain:
    """State of one fragment. Changed under the learner's lock only."""

    anchor: Version
    """The version that the learner has adopted last."""
    sync_every: int
    """Own steps after an adoption at which the learner opens a round itself."""
    head_start: int = 0
    """By how many steps the first round comes sooner, so that the fragments' rounds are staggered."""
    adopted_at: Work = Work()  # noqa: RUF009 - a tuple
    merged: Work = Work()  # noqa: RUF009
    """The learner's own work that is in the anchor."""
    taken: Taken | None = None
    fetched: Version | None = None
    """A version downloaded, but not yet known to be of the chain: see `confirmed`."""
    offer: Version | None = None
    """A version ready for the training thread."""
    newest: int = 0
    """The newest version seen."""
    open_version: int = 0
    """The version that the newest open round makes; no round was seen open if it is not the next."""
    open_since: float = 0.0
    """When the learner first saw that round open, on its own clock."""
    missed: bool = False
    """Whether the last contribution came too late: then the next one goes out at once."""
    refused: set[int] = field(default_factory=set)
    """Versions that cannot be read."""

    @property
    def next_version(self) -> int:
        """The version that the round after the anchor makes."""
        return self.anchor.version + 1

    @property
    def held(self) -> int:
        """The newest version that the learner has, adopted or not."""
        return max(item.version for item in (self.anchor, self.fetched, self.offer) if item)

    def due(self, now: Work) -> bool:
        """Whether the training thread should copy its parameters for the next round."""
        if self.taken or self.newest > self.anchor.version or not self.unmerged(now).steps:
            return False
        own = now.since(self.adopted_at).steps
        return own >= self.sync_every - self.head_start or self.open_version == self.next_version or self.missed

    def due_at_last(self, now: Work) -> bool:
        """Whether a learner that leaves should copy its parameters once more."""
        return not self.taken and self.newest == self.anchor.version and self.unmerged(now).steps > 0

    def unmerged(self, now: Work) -> Work:
        """Return the work that is in no version and in no pending contribution's past."""
        return now.since(self.merged)

    def take(self, now: Work) -> None:
        """Note that the parameters have been copied for the next round."""
        self.taken = Taken(self.next_version, now)
        self.missed = False

    def seen(self, newest: int, opened: bool, clock: float) -> None:
        """Learn from a listing: the newest version, and whether the round after it has been opened."""
        self.newest = newest
        if opened and self.open_version != newest + 1:
            self.open_version, self.open_since = newest + 1, clock

    def confirmed(self, newest: int) -> bool:
        """Make what was fetched an offer, if it was certainly never deleted before it was read; say whether it was.

        Only versions up to `newest - KEPT_VERSIONS` are ever deleted. A record of such a version may
        have been created anew by a learner that slept over the deletion, and would be of no chain.
        """
        fetched, self.fetched = self.fetched, None
        if fetched is None or newest - fetched.version >= KEPT_VERSIONS:
            return False
        self.offer = fetched
        return True

    def merges_taken(self, version: Version, learner: str) -> bool:
        """Whether the version holds what this learner has offered since its anchor."""
        return self.taken is not None and self.taken.contributed and version.merges(learner, self.taken.version)

    def adopt(self, learner: str, now: Work) -> Adoption:
        """Make the offer the anchor. What it does not hold stays with the learner and is offered again."""
        offer = self.offer
        assert offer is not None
        merged = self.merges_taken(offer, learner)
        missed = self.taken is not None and not merged
        since = self.taken.work if merged and self.taken else self.adopted_at
        adoption = Adoption(offer, merged, missed, offer.version - self.next_version, now.since(since).steps)
        if merged and self.taken:
            self.merged = self.taken.work
        # A contribution that was unusable does not hurry the next: it may be no better.
        self.missed = (missed or (self.missed and not merged)) and learner not in offer.refused
        self.anchor, self.adopted_at, self.head_start = offer, now, 0
        self.taken = self.offer = None
        return adoption
