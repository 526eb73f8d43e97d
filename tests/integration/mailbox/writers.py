"""A program without threads that forks writers: `writers.py lines|times|race FOLDER`. Prints JSON.

- `lines`: the n-th writer is killed before the n-th line that the file store executes, until one gets through; each
  writes one object into a folder of its own. Prints how many were killed.
- `times`: writers of many large objects are killed at random times after the first, all in one folder. Prints how
  many were killed.
- `race`: writers meet at each key, then all try to create it. Prints which keys each was told to have created.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import FrameType
from typing import Any

from gradientmail.mailbox import file
from gradientmail.mailbox.file import FileStore

KEY, DATA = "units/000000-0.json", b"node-0" * 1000
LARGE_BYTES = 1 << 20
RACERS, RACED_KEYS = 4, 150
KILLED_WRITERS = 25


def large(number: int) -> bytes:
    return bytes([number % 256]) * LARGE_BYTES


def die_at_line(last: int) -> None:
    """Kill this process before the given line of the file store, counted from 1."""
    executed = count(1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != file.__file__:
            return None
        if event == "line" and next(executed) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def forked_write(root: Path, line: int) -> bool:
    """Return whether the writer got through."""
    child = os.fork()
    if child == 0:
        store = FileStore(root)
        die_at_line(line)
        store.put_if_absent(KEY, DATA)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def killed_at_lines(folder: Path) -> int:
    return next(line - 1 for line in count(1) if forked_write(folder / f"{line:03d}", line))


def killed_at_times(folder: Path) -> int:
    generator = random.Random(7)
    for writer in range(KILLED_WRITERS):
        progress, written = os.pipe()
        child = os.fork()
        if child == 0:
            write_for_ever(FileStore(folder), writer, written)
        os.read(progress, 1)
        time.sleep(generator.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        os.close(progress)
        os.close(written)
    return KILLED_WRITERS


def write_for_ever(store: FileStore, writer: int, written: int) -> None:
    """Write large objects, and a byte into the pipe after each."""
    for number in count(writer * 1000):
        store.put_if_absent(f"units/{number:06d}", large(number))
        os.write(written, b".")


def raced(folder: Path) -> list[list[int]]:
    context = multiprocessing.get_context("fork")
    meeting, pipes = context.Barrier(RACERS), [context.Pipe(duplex=False) for _ in range(RACERS)]
    for racer, (_, sender) in enumerate(pipes):
        context.Process(target=create_all, args=(folder, racer, meeting, sender)).start()
    return [receiver.recv() for receiver, _ in pipes]


def create_all(folder: Path, racer: int, meeting: Barrier, answers: Connection) -> None:
    store, won = FileStore(folder), []
    for number in range(RACED_KEYS):
        meeting.wait(60)
        if store.put_if_absent(f"units/{number:04d}", b"%d" % racer):
            won.append(number)
    answers.send(won)


if __name__ == "__main__":
    programs: dict[str, Callable[[Path], object]] = {"lines": killed_at_lines, "times": killed_at_times, "race": raced}
    print(json.dumps(programs[sys.argv[1]](Path(sys.argv[2]))))
