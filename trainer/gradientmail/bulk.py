"""Many objects read at once: by threads, and for very many by processes too, where the store reaches across them.

One process asks a store for some thousand objects a second: its own work for each, not the network, is what
limits it. So 100,000 receipts on S3 are read by as many processes as there are cores. Processes are spawned, so a
script that calls this needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from gradientmail.mailbox import Mailbox, Store

logger = logging.getLogger(__name__)

READERS = 16
"""Threads of one process that read objects at the same time."""
MOST_AT_ONCE = 64
"""Objects that one thread reads in a row: on a local disk handing over costs more than reading."""
WORTH_PROCESSES = 20_000
"""With fewer objects, starting processes takes longer than they save."""
PER_PROCESS = 1000
"""Objects that one process reads before the caller hears of them."""

Seen = Callable[[int, int], None]
"""Called with how many objects have been read, and of how many, on the thread that asked for them."""


def unseen(_done: int, _every: int) -> None:
    """Tell nobody."""


def read_by_threads(box: Mailbox, keys: Sequence[str], pool: Executor, seen: Seen = unseen) -> dict[str, bytes]:
    """Return the objects that are there, read by a pool of READERS threads. Raises the mailbox's errors."""
    size = max(1, min(MOST_AT_ONCE, len(keys) // READERS))
    return _gathered(pool.map(lambda part: _read_in_a_row(box, part), _parts(keys, size)), size, len(keys), seen)


def read_by_processes(box: Store, keys: Sequence[str], processes: int, seen: Seen = unseen) -> dict[str, bytes]:
    """Return the objects that are there, read by so many processes of READERS threads each.

    Raises the mailbox's errors. Requests are counted by no observer of this process. If a process is killed, as where
    memory is short, this one reads them all.
    """
    try:
        return _read_elsewhere(box, keys, processes, seen)
    except BrokenProcessPool:
        logger.warning("a process that read objects was killed: reading them by one process, which takes longer")
    with ThreadPoolExecutor(READERS, thread_name_prefix="bulk") as pool:
        return read_by_threads(box, keys, pool, seen)


def _read_elsewhere(box: Store, keys: Sequence[str], processes: int, seen: Seen) -> dict[str, bytes]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _Worker.start, (box,)) as pool:
        try:
            return _gathered(pool.map(_Worker.read, _parts(keys, PER_PROCESS)), PER_PROCESS, len(keys), seen)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def worth_processes(box: Mailbox, objects: int, processes: int) -> bool:
    """Return whether several processes read so many objects of this store sooner than one."""
    return processes > 1 and objects >= WORTH_PROCESSES and isinstance(box, Store) and box.spans_processes


class _Worker:
    """What a process needs to read: the store and its threads."""

    box: Store
    pool: ThreadPoolExecutor

    @classmethod
    def start(cls, box: Store) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
        cls.box, cls.pool = box, ThreadPoolExecutor(READERS, thread_name_prefix="bulk")

    @classmethod
    def read(cls, keys: Sequence[str]) -> dict[str, bytes]:
        return read_by_threads(cls.box, keys, cls.pool)


def _gathered(parts: Iterable[Mapping[str, bytes]], size: int, every: int, seen: Seen) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for number, part in enumerate(parts, start=1):
        found.update(part)
        seen(min(number * size, every), every)
    return found


def _parts(keys: Sequence[str], size: int) -> list[Sequence[str]]:
    return [keys[first : first + size] for first in range(0, len(keys), size)]


def _read_in_a_row(box: Mailbox, keys: Sequence[str]) -> dict[str, bytes]:
    return {key: data for key in keys if (data := box.get(key)) is not None}
