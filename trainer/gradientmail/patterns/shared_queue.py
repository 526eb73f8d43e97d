"""The shared queue: nodes reserve units of a data grid with create-once objects (interface; see below)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from gradientmail.mailbox import Mailbox

UnitT = TypeVar("UnitT")
BatchT = TypeVar("BatchT")


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of one queue's counts."""

    claimed: int = 0
    consumed: int = 0
    conflicts: int = 0
    batches: int = 0
    buffered: int = 0
    wait_seconds: float = 0.0
    claim_seconds: float = 0.0
    load_seconds: float = 0.0


class QueueObserver(Protocol):
    """Told of a queue's events as they happen, each on the queue's own threads, never the loop's."""

    def claimed(self, identifier: str, seconds: float) -> None: ...
    def lost(self, identifier: str) -> None: ...
    def loaded(self, identifier: str, batches: int, seconds: float) -> None: ...
    def consumed(self, identifier: str) -> None: ...


class SharedQueue(Generic[BatchT]):
    """A context manager that is its own iterator over batches."""

    @property
    def statistics(self) -> QueueStatistics: ...
    @property
    def unit(self) -> str | None:
        """Identifier of the unit that the batch in use belongs to."""
    def stop(self) -> None:
        """From any thread or signal handler: the batch in use is the last one. Claims and loads nothing more."""
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def __iter__(self) -> Iterator[BatchT]: ...
    def __next__(self) -> BatchT: ...


def shared_queue(
    units: Mapping[str, UnitT],
    *,
    mailbox: Mailbox,
    learner_id: str,
    load: Callable[[UnitT], Iterable[BatchT]],
    prefetch: int = 8,
    claim_ahead: int | None = None,
    outage_seconds: float = 900.0,
    receipts: bool = True,
    observer: QueueObserver | None = None,
) -> SharedQueue[BatchT]:
    raise NotImplementedError
