"""The state of a run, read from its mailbox alone.

Assumes the keys of `layout` and nothing else: no log, no metric, no clock of the store. What it
cannot read it skips and counts (`foreign`). Raises the mailbox's errors and NotARun.

Order matters: learners that have left are listed before receipts are. A learner writes its
farewell after its last receipt, so a unit that looks unfinished here and whose owner is seen to
have left is lost for certain; it cannot be a receipt that came in meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from gradientmail.bulk import READERS, Seen, read_by_processes, read_by_threads, unseen, worth_processes
from gradientmail.exits import UserError
from gradientmail.layout import ALIVE, CONSUMED, FINAL, LEFT, RUN, UNITS, beat_key, receipt_key
from gradientmail.mailbox import Mailbox, Store
from gradientmail.progress import NodeProgress, Receipt
from gradientmail.run import GradientRun
from gradientmail.units import Unit

Presence = Literal["live", "left", "silent", "unknown"]
"""Of a learner: heartbeats recent, farewell written, heartbeats old, or no word of its own at all."""

GONE: frozenset[Presence] = frozenset({"left", "silent"})
"""Learners of whom nothing more is to come."""

SILENT_AFTER_SECONDS = 60.0
"""A learner without a heartbeat for this long is taken for dead."""

EXAMPLES = 5
"""Foreign keys that are kept by name."""

NOTHING = (
    "holds no run: neither run.json nor claims under units/ were found; "
    "give the prefix that the run itself names as its mailbox"
)

Record = TypeVar("Record", NodeProgress, Receipt)


class NotARun(UserError):
    """The mailbox holds no run."""


@dataclass(frozen=True, slots=True)
class Learner:
    """One process that has run under the prefix."""

    name: str
    node: str
    """Name of its node, `{pool}-{index}`; a node that was restarted has had several learners."""
    progress: NodeProgress | None = None
    """Its latest word: the farewell, else the latest heartbeat."""
    beat: int | None = None
    """Number of its latest heartbeat."""
    left: bool = False
    """Whether it has written a farewell."""

    def silence(self, now: float) -> float | None:
        """Return seconds since its latest word by both clocks, never below 0; None without a word."""
        return None if self.progress is None else max(0.0, now - self.progress.time)

    def presence(self, now: float, silent_after: float = SILENT_AFTER_SECONDS) -> Presence:
        """Return whether it is there. `now` is in seconds since the epoch."""
        silence = self.silence(now)
        if self.left:
            return "left"
        if silence is None:
            return "unknown"
        return "silent" if silence > silent_after else "live"


@dataclass(frozen=True, slots=True)
class Foreign:
    """Objects under the run's folders that are none of the run's."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def with_keys(self, keys: Sequence[str]) -> Foreign:
        """Return the record with more keys counted."""
        return Foreign(self.count + len(keys), (*self.examples, *keys)[:EXAMPLES])


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment. Identifiers are those of the grid; foreign ones have been left out."""

    read_at: float
    """When reading ended, seconds since the epoch on the reader's clock."""
    manifest: GradientRun | None = None
    """None if the run was started without one, by a script of its own."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """The grid; empty without a manifest."""
    claimed: frozenset[str] = frozenset()
    consumed: frozenset[str] = frozenset()
    receipts: Mapping[str, Receipt] | None = None
    """Receipts of the consumed units; None if they were too many to be read."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Learner of each unit that is claimed and not consumed."""
    learners: Mapping[str, Learner] = field(default_factory=dict)
    has_final_model: bool = False
    """Whether its last learner has written `model/final.safetensors`; looked for only where learners exchange."""
    foreign: Foreign = field(default_factory=Foreign)

    @property
    def total(self) -> int | None:
        """Units of the run; None without a manifest."""
        return len(self.units) if self.manifest else None

    @property
    def complete(self) -> bool:
        """Whether every unit has been trained."""
        return self.total is not None and len(self.consumed) == self.total

    @property
    def unclaimed(self) -> int | None:
        """Units that no node has reserved; None without a manifest."""
        return None if self.total is None else self.total - len(self.claimed)

    def by_node(self) -> dict[str, list[Learner]]:
        """Return the learners of each node: first the manifest's nodes in its order, those without learners too."""
        nodes: dict[str, list[Learner]] = {
            name: [] for name in (self.manifest.spec.node_names if self.manifest else [])
        }
        for learner in self.learners.values():
            nodes.setdefault(learner.node, []).append(learner)
        return nodes

    def node_of(self, learner: str) -> str:
        """Return the node that a learner ran on; its own name where nothing tells."""
        known = self.learners.get(learner)
        return known.node if known else learner

    def lost(self, *, silent_after: float = SILENT_AFTER_SECONDS) -> dict[str, str]:
        """Return the owner of each unit that nobody will train: its owner has left or fallen silent."""
        gone = {name for name, each in self.learners.items() if each.presence(self.read_at, silent_after) in GONE}
        return {identifier: owner for identifier, owner in self.owners.items() if owner in gone}


def read_run(
    box: Mailbox,
    *,
    most_receipts: int | None = None,
    clock: Callable[[], float] = time.time,
    processes: int = 1,
    seen: Seen = unseen,
) -> RunState:
    """Read the run in this mailbox. Blocks for listing claims, receipts and heartbeats, and for reading receipts.

    Receipts are read one request each, by READERS threads, and very many by `processes` of as many threads where the
    store reaches across processes (see `gradientmail.bulk`); `seen` hears how far that is.
    With `most_receipts`, receipts are not read if there are more: the number of reads then grows
    with the number of learners alone. Raises NotARun if there is no trace of a run.
    """
    with ThreadPoolExecutor(READERS, thread_name_prefix="runstate") as pool:
        return _Reading(box, pool, processes, seen).state(most_receipts, clock)


class _Reading:
    """One reading of a mailbox, and the keys that turned out to be foreign."""

    def __init__(self, box: Mailbox, pool: ThreadPoolExecutor, processes: int, seen: Seen) -> None:
        self._box, self._pool, self._processes, self._seen = box, pool, processes, seen
        self._foreign = Foreign()

    def state(self, most_receipts: int | None, clock: Callable[[], float]) -> RunState:
        manifest = self._manifest()
        units = manifest.spec.data.grid() if manifest else {}
        claims = self._pool.submit(self._keys, UNITS)
        learners = self._learners()
        claimed = self._known(claims.result(), UNITS, units)
        consumed = self._known(self._keys(CONSUMED), CONSUMED, units)
        few = most_receipts is None or len(consumed) <= most_receipts
        read = self._receipts(consumed) if few else None
        done = frozenset(consumed if read is None else read)
        owners = self._owners([identifier for identifier in claimed if identifier not in done])
        if manifest is None and not (learners or claimed or done):
            raise NotARun(NOTHING)
        return RunState(
            read_at=clock(),
            manifest=manifest,
            units=units,
            claimed=done.union(claimed),
            consumed=done,
            receipts=read,
            owners=owners,
            learners=_with_silent_ones(learners, owners, read or {}, manifest),
            has_final_model=_exchanging(learners) and FINAL in self._keys(FINAL),
            foreign=self._foreign,
        )

    def _manifest(self) -> GradientRun | None:
        text = self._box.get(RUN)
        if text is None:
            return None
        try:
            return GradientRun.model_validate_json(text)
        except ValueError:
            self._skip([RUN])
            return None

    def _known(self, keys: list[str], prefix: str, units: Mapping[str, Unit]) -> list[str]:
        names = [key.removeprefix(prefix) for key in keys]
        good = [name for name in names if (name in units if units else "/" not in name)]
        if len(good) < len(names):
            mine = set(good)
            self._skip([prefix + name for name in names if name not in mine])
        return good

    def _receipts(self, identifiers: Sequence[str]) -> dict[str, Receipt]:
        keys = [receipt_key(identifier) for identifier in identifiers]
        if isinstance(self._box, Store) and worth_processes(self._box, len(keys), self._processes):
            found = read_by_processes(self._box, keys, self._processes, self._seen)
        else:
            found = read_by_threads(self._box, keys, self._pool, self._seen)
        return {key.removeprefix(CONSUMED): receipt for key, receipt in self._parsed(Receipt, found).items()}

    def _owners(self, identifiers: Sequence[str]) -> dict[str, str]:
        found = self._read([UNITS + identifier for identifier in identifiers])
        return {key.removeprefix(UNITS): data.decode(errors="replace") for key, data in found.items()}

    def _learners(self) -> dict[str, Learner]:
        left = {key.removeprefix(LEFT): key for key in self._keys(LEFT)}
        beats = self._latest_beats(self._keys(ALIVE))
        farewells = self._parsed(NodeProgress, self._read(list(left.values())))
        words = self._heartbeats({name: beat for name, beat in beats.items() if name not in left})
        words |= {name: farewells[key] for name, key in left.items() if key in farewells}
        return {
            name: _learner(name, words.get(name), beats.get(name), name in left)
            for name in sorted(beats.keys() | left.keys())
        }

    def _heartbeats(self, beats: Mapping[str, int]) -> dict[str, NodeProgress]:
        found = self._read([beat_key(name, beat) for name, beat in beats.items()])
        words = self._parsed(NodeProgress, found)
        by_name = {name: words[key] for name, beat in beats.items() if (key := beat_key(name, beat)) in words}
        overtaken = [name for name, beat in beats.items() if beat_key(name, beat) not in found]
        return by_name | {name: word for name in overtaken if (word := self._newest_word(name))}

    def _newest_word(self, name: str) -> NodeProgress | None:
        """Look again: a learner deletes old heartbeats, and may have done so since they were listed."""
        keys = self._keys(f"{ALIVE}{name}/")[-1:]
        return next(iter(self._parsed(NodeProgress, self._read(keys)).values()), None)

    def _latest_beats(self, keys: list[str]) -> dict[str, int]:
        latest: dict[str, int] = {}
        strange = []
        for key in keys:
            name, _, beat = key.removeprefix(ALIVE).partition("/")
            if name and beat.isdecimal() and key == beat_key(name, int(beat)):
                latest[name] = max(latest.get(name, 0), int(beat))
            else:
                strange.append(key)
        self._skip(strange)
        return latest

    def _parsed(self, kind: type[Record], objects: Mapping[str, bytes]) -> dict[str, Record]:
        records: dict[str, Record] = {}
        strange = []
        for key, data in objects.items():
            try:
                records[key] = _checked(kind.from_json(data))
            except (ValueError, TypeError):
                strange.append(key)
        self._skip([key for key in strange if not _is_registration(key)])
        return records

    def _skip(self, keys: Sequence[str]) -> None:
        self._foreign = self._foreign.with_keys(keys)

    def _keys(self, prefix: str) -> list[str]:
        return list(self._box.list(prefix))

    def _read(self, keys: Sequence[str]) -> dict[str, bytes]:
        return read_by_threads(self._box, keys, self._pool)


def total_of(counts: Mapping[str, int], learners: Iterable[Learner]) -> int:
    """Return the sum of counts by learner over these learners."""
    return sum(counts.get(learner.name, 0) for learner in learners)


def newest_of(learners: Iterable[Learner]) -> Learner | None:
    """Return the learner with the latest word, or any if none has a word; None if there is none."""
    return max(learners, key=lambda learner: learner.progress.time if learner.progress else 0.0, default=None)


def _exchanging(learners: Mapping[str, Learner]) -> bool:
    return any(learner.progress and learner.progress.exchange for learner in learners.values())


def _checked(record: Record) -> Record:
    """Return the record if its numbers are numbers. Raises TypeError otherwise: JSON holds anything."""
    match record:
        case Receipt():
            _ = record.learner + "", record.batches + record.claimed + record.started + record.finished
        case NodeProgress():
            _ = record.learner + record.node, record.time + record.claimed + record.consumed + record.batches
    return record


def _is_registration(key: str) -> bool:
    return key.startswith(ALIVE) and key.endswith(f"/{0:010d}")


def _learner(name: str, word: NodeProgress | None, beat: int | None, left: bool) -> Learner:
    return Learner(name, word.node if word else name, word, beat, left)


def _with_silent_ones(
    learners: Mapping[str, Learner],
    owners: Mapping[str, str],
    receipts: Mapping[str, Receipt],
    manifest: GradientRun | None,
) -> dict[str, Learner]:
    """Add the learners that only claims or receipts tell of, and name nodes that no word has named."""
    nodes = set(manifest.spec.node_names) if manifest else set()
    everyone = {*learners, *owners.values(), *(receipt.learner for receipt in receipts.values())}
    known = {name: learners.get(name, Learner(name, name)) for name in sorted(everyone)}
    return {
        name: replace(learner, node=_node_by_name(name, nodes)) if learner.progress is None else learner
        for name, learner in known.items()
    }


def _node_by_name(learner: str, nodes: set[str]) -> str:
    stem = learner.rpartition("-")[0]
    return stem if stem in nodes else learner
