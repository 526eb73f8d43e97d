"""What one listing shows of a run: who takes part, and how each fragment's rounds stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gradientmail.exchange.keys import MEMBERS, ROUNDS, RUN


@dataclass(frozen=True, slots=True)
class Rounds:
    """One fragment's rounds as listed."""

    newest: int = 0
    """The newest version; version 0 has no record of its own."""
    contributors: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Who has contributed, by version."""
    keys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Every key, by version."""

    def behind(self, version: int) -> list[str]:
        """Return the keys of versions up to this one."""
        return [key for number, keys in self.keys.items() if number <= version for key in keys]


@dataclass(frozen=True, slots=True)
class View:
    """A whole listing. It may be out of date as soon as it is made; what it shows was once so."""

    members: frozenset[str]
    fragments: tuple[Rounds, ...]
    foreign: tuple[str, ...] = ()
    """Keys that no exchange writes; they are left alone."""


@dataclass(slots=True)
class _Rounds:
    newest: int = 0
    contributors: dict[int, set[str]] = field(default_factory=dict)
    keys: dict[int, list[str]] = field(default_factory=dict)

    def add(self, key: str, version: int, contributor: str | None) -> None:
        self.keys.setdefault(version, []).append(key)
        if contributor is None:
            self.newest = max(self.newest, version)
        else:
            self.contributors.setdefault(version, set()).add(contributor)

    def frozen(self) -> Rounds:
        contributors = {version: frozenset(names) for version, names in self.contributors.items()}
        return Rounds(self.newest, contributors, {version: tuple(keys) for version, keys in self.keys.items()})


def view_of(keys: Iterable[str], fragments: int) -> View:
    """Return what the keys of a listing of EXCHANGE after STATE_AFTER mean."""
    members: set[str] = set()
    foreign: list[str] = []
    rounds = [_Rounds() for _ in range(fragments)]
    for key in keys:
        if key.startswith(MEMBERS):
            members.add(key.removeprefix(MEMBERS))
        elif (parsed := _round(key)) and parsed[0] < fragments:
            rounds[parsed[0]].add(key, *parsed[1:])
        elif key != RUN:
            foreign.append(key)
    return View(frozenset(members), tuple(item.frozen() for item in rounds), tuple(foreign))


def _round(key: str) -> tuple[int, int, str | None] | None:
    match key.removeprefix(ROUNDS).split("/"):
        case [fragment, version, "version"] if key.startswith(ROUNDS) and _numbers(fragment, version):
            return int(fragment), int(version), None
        case [fragment, version, "contributions", learner] if key.startswith(ROUNDS) and _numbers(fragment, version):
            return int(fragment), int(version), learner
        case _:
            return None


def _numbers(fragment: str, version: str) -> bool:
    digits = fragment + version
    return (len(fragment), len(version)) == (4, 10) and digits.isascii() and digits.isdecimal() and int(version) > 0
