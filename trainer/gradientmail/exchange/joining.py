"""How a learner joins a run, or founds it. No torch, no I/O: see learner.py for how conversations are driven."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gradientmail.exchange.chain import KEPT_VERSIONS
from gradientmail.exchange.keys import RUN, member_key, version_key
from gradientmail.exchange.learner import listing
from gradientmail.exchange.records import (
    Agreement,
    Founding,
    Member,
    RecordRefused,
    TensorShape,
    Version,
    first_version,
)
from gradientmail.exchange.requests import (
    Conversation,
    Create,
    Fetch,
    Fetched,
    Found,
    Founded,
    Read,
    Refused,
    in_turn,
    together,
)
from gradientmail.exchange.view import View
from gradientmail.exits import Exit, UserError

Layout = tuple[tuple[TensorShape, ...], ...]

ATTEMPTS = 20


class ExchangeMismatch(UserError):
    """This node's model, options or protocol are not the run's, or the run's founding record says nothing of them."""


class ExchangeUnreadable(UserError):
    """Objects that joining needs are missing or damaged: the run may replace them, so a node may try again."""

    exit = Exit.FAILED


def found_or_read(learner: str, agreement: Agreement, layout: Layout) -> Conversation[Founding]:
    """Return the run's founding record, writing it if there is none.

    Raises ExchangeMismatch if the run's options or parameters are others, or the record is damaged.
    """
    data = yield Read(RUN)
    if data is None:
        founded = yield Found()
        assert isinstance(founded, Founded)
        yield Create(RUN, Founding(learner, agreement, layout, founded.parameters).to_json())
        data = yield Read(RUN)
    if not isinstance(data, bytes):
        raise ExchangeUnreadable(f"the store does not return {RUN}, which exists: check it with `gradientmail doctor`")
    try:
        founding = Founding.from_json(RUN, data)
    except RecordRefused as why:
        raise ExchangeMismatch(f"{why}: start the run over under a fresh prefix") from None
    if told := next(differences(founding, agreement, layout), None):
        raise ExchangeMismatch(told)
    return founding


def differences(founding: Founding, agreement: Agreement, layout: Layout) -> Iterator[str]:
    """Yield a sentence for each way in which this node's options or parameters are not the run's."""
    for name in Agreement.__slots__:
        mine, theirs = getattr(agreement, name), getattr(founding.agreement, name)
        if mine != theirs:
            yield (
                f"{name} is {mine!r} here and {theirs!r} in the run, as {founding.founder!r} set it: "
                "give every node of a run the same options, or a run of other options a prefix of its own"
            )
    mine_by_name, theirs_by_name = _by_name(layout), _by_name(founding.layout)
    advice = "give every node of a run the same model, or a run of another model a prefix of its own"
    for name in {**mine_by_name, **theirs_by_name}:  # in the model's order
        here, there = mine_by_name.get(name), theirs_by_name.get(name)
        if here != there:
            yield f"parameter {name!r} {_shape(here)} here and {_shape(there)} in the run: {advice}"
    if [[item.name for item in part] for part in layout] != [[item.name for item in part] for part in founding.layout]:
        yield f"the run's parameters are in another order: {advice}"


def _by_name(layout: Layout) -> dict[str, tuple[int, ...]]:
    return {item.name: item.shape for fragment in layout for item in fragment}


def _shape(shape: tuple[int, ...] | None) -> str:
    return "does not exist" if shape is None else f"has shape {list(shape)}"


def join(
    learner: str,
    process: str,
    founding: Founding,
    in_use: Callable[[], Exception],
    side_by_side: bool = True,
) -> Conversation[tuple[Version, ...]]:
    """Fetch the newest versions, side by side or one after the other, and become a member; return the versions.

    Raises what `in_use` makes if another process has had this learner ID, ExchangeUnreadable if
    a fragment has no version that can be read.
    """
    for _ in range(ATTEMPTS):
        view = yield from listing(len(founding.layout))
        anchors = yield from _newest(founding, view, side_by_side)
        if anchors is None:
            continue
        if any(learner in anchor.shares for anchor in anchors):
            raise in_use()
        after = yield from listing(len(founding.layout))
        if all(_certain(anchor, after) for anchor in anchors):
            yield from _register(learner, process, anchors, in_use)
            return anchors
    raise ExchangeUnreadable(
        f"the run's versions were replaced {ATTEMPTS} times before they could be downloaded: "
        "raise sync_every, or give this node a faster way to the store"
    )


def _certain(anchor: Version, view: View) -> bool:
    """Whether the version cannot have been deleted before it was read; see Chain.confirmed."""
    return view.fragments[anchor.fragment].newest - anchor.version < KEPT_VERSIONS


def _newest(founding: Founding, view: View, side_by_side: bool) -> Conversation[tuple[Version, ...] | None]:
    newest = [rounds.newest for rounds in view.fragments]
    reads = [_readable(founding, fragment, number) for fragment, number in enumerate(newest)]
    found = yield from (together if side_by_side else in_turn)(reads)
    versions = tuple(version for version in found if version is not None)
    return versions if len(versions) == len(found) else None


def _readable(founding: Founding, fragment: int, newest: int) -> Conversation[Version | None]:
    """Return the newest version that can be read, of those that are kept; None if one has been deleted meanwhile.

    A learner that starts from an older version adopts the next one that it can read, as one that sleeps does.
    """
    problem = ""
    for number in range(newest, max(-1, newest - KEPT_VERSIONS), -1):
        try:
            version = yield from _read(founding, fragment, number)
        except RecordRefused as why:
            problem = str(why)
        else:
            fetched = (yield Fetch(version, None)) if version else Fetched(False)
            assert isinstance(fetched, Fetched)
            if not fetched.problem:
                return version if fetched.ready else None
            problem = fetched.problem
        yield Refused(version_key(fragment, number), problem)
    raise ExchangeUnreadable(
        f"no version of fragment {fragment} that the run keeps can be read, the oldest because {problem}: "
        "try again once the run has made another version, or start the run over under a fresh prefix"
    )


def _read(founding: Founding, fragment: int, number: int) -> Conversation[Version | None]:
    if number == 0:
        return first_version(founding, fragment)
    key = version_key(fragment, number)
    data = yield Read(key)
    return Version.from_json(key, data, fragment=fragment, version=number) if isinstance(data, bytes) else None


def _register(
    learner: str, process: str, anchors: tuple[Version, ...], in_use: Callable[[], Exception]
) -> Conversation[None]:
    mine = Member(learner, process, tuple(anchor.version for anchor in anchors)).to_json()
    yield Create(member_key(learner), mine)
    if (yield Read(member_key(learner))) != mine:
        raise in_use()
