"""Who closes a round, and when. Pure.

Safety does not rest on any of this: the record of a version is created at most once, whoever
tries. This decides how long a round stays open and keeps nodes from doing the same work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from gradientmail.exchange.records import Version

MISSED_ROUNDS = 2
"""A learner that has missed so many rounds is no longer waited for, until it contributes again."""


LEAVING_SHARE = 6
"""A learner that leaves is as patient as this part of the time that it has."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a learner waits, in seconds since it first saw the round open."""

    patience: float
    """For contributions of learners that are taking part."""
    takeover: float
    """For each closer before it in the order, after that."""

    def hurried(self, flush_seconds: float) -> Timing:
        """Return the times of a learner that leaves within so many seconds, and may need two rounds for it.

        Others may then miss a round that would have waited for them; their work goes into the next one.
        """
        longest = flush_seconds / LEAVING_SHARE
        return Timing(min(self.patience, longest), min(self.takeover, longest))


def last_seen(learner: str, anchor: Version, joined: Mapping[str, int]) -> int | None:
    """Return the last version that shows a sign of the learner, or None if none does."""
    share = anchor.shares.get(learner)
    signs = [version for version in (share.version if share else None, joined.get(learner)) if version is not None]
    return max(signs, default=None)


def awaited(anchor: Version, members: frozenset[str], joined: Mapping[str, int]) -> frozenset[str]:
    """Return the learners whose contributions the round after `anchor` waits for.

    Members that have joined, or contributed, within the last rounds. One that died without a
    word is thus waited for in two rounds, and then no more.
    """
    oldest = anchor.version + 1 - MISSED_ROUNDS
    return frozenset(
        learner for learner in members if (seen := last_seen(learner, anchor, joined)) is not None and seen >= oldest
    )


def closers(anchor: Version, candidates: frozenset[str]) -> list[str]:
    """Return the contributors in the order in which they may close the round after `anchor`.

    Whoever closed the version before comes first: it still holds the outer momentum. A take-over
    makes its author the next first closer, so a slow closer is replaced for good. Where nobody
    has closed, the order differs from fragment to fragment, to share the work.
    """
    return sorted(candidates, key=lambda learner: (learner != anchor.closer, _spread(anchor.fragment, learner)))


def closing_delay(rank: int, complete: bool, timing: Timing) -> float:
    """Return how long after it saw the round open the closer of this rank closes it."""
    return (0.0 if complete else timing.patience) + rank * timing.takeover


def due_to_close(
    learner: str,
    anchor: Version,
    contributors: frozenset[str],
    members: frozenset[str],
    joined: Mapping[str, int],
    open_seconds: float,
    timing: Timing,
) -> bool:
    """Whether a learner that has contributed to the round after `anchor` closes it now."""
    rank = closers(anchor, contributors & members | {learner}).index(learner)
    complete = awaited(anchor, members, joined) <= contributors
    return open_seconds >= closing_delay(rank, complete, timing)


def _spread(fragment: int, learner: str) -> str:
    return hashlib.sha256(f"{fragment} {learner}".encode()).hexdigest()
