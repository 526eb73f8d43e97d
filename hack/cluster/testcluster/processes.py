"""Starting long-lived programs and knowing them again later.

A program is known by its process id *and* the kernel's start time of that process, within one boot: an id on its own is
given to another process sooner or later. Ends are always waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import ClusterError
from .shell import wait_until

# A server that waits for its clients' open watches would take a minute; they connect again by themselves.
PATIENCE_SECONDS = 5.0
KILL_SECONDS = 120.0
EXEC_SECONDS = 1.0
# The new process enters its control groups before it becomes the program, so nothing it forks can be outside.
JOIN_AND_RUN = 'count=$1; shift; while [ "$count" -gt 0 ]; do echo $$ >"$1"; shift; count=$((count-1)); done; exec "$@"'
# Children not yet waited for by this process; without this they would stay as zombies while it runs.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Identity:
    """One process of one boot; ``started`` is in the kernel's clock ticks since the boot."""

    pid: int
    started: int
    boot: str


def parse_stat(text: str) -> tuple[str, int]:
    """State letter and start time from ``/proc/PID/stat``; the program's name in it may hold anything."""
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def parse_environment_end(text: str) -> int:
    """Address of the end of the environment from ``/proc/PID/stat``; 0 until exec has put it in place."""
    return int(text.rpartition(")")[2].split()[48])


def identify(pid: int) -> Identity | None:
    """Identity of a running process; None when there is none or it is a zombie."""
    if pid in _children:
        _children[pid].poll()
    try:
        state, started = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else Identity(pid=pid, started=started, boot=boot_id())


def boot_id() -> str:
    """The kernel's name for the present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Supervisor:
    """Starts programs, remembers them in a folder of records, and ends them."""

    def __init__(self, records: Path, logs: Path) -> None:
        self._records = records
        self._logs = logs

    def log(self, name: str) -> Path:
        """File that holds the program's output."""
        return self._logs / f"{name}.log"

    def running(self, name: str) -> int | None:
        """Process id of the program if the very process that was started still runs."""
        try:
            known = Identity(**json.loads(self._record(name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return known.pid if identify(known.pid) == known else None

    def start(self, name: str, command: Sequence[str], *, joins: Sequence[Path], environment: Mapping[str, str]) -> int:
        """Start a program in a session of its own and return its process id; does nothing if it runs already."""
        pid = self.running(name)
        if pid is not None:
            return pid
        words = ["/bin/sh", "-c", JOIN_AND_RUN, "sh", str(len(joins)), *map(str, joins), *command]
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("a") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        _children[process.pid] = process
        self._remember(name, process.pid)
        return process.pid

    def set_logs_aside(self) -> None:
        """Keep the logs of the cluster before, and of no other, in a folder called ``….previous``."""
        previous = self._logs.with_name(self._logs.name + ".previous")
        shutil.rmtree(previous, ignore_errors=True)
        if self._logs.exists():
            self._logs.rename(previous)

    def check(self, name: str) -> None:
        """Raise `ClusterError` with the end of its log if the program has ended."""
        if self.running(name) is None:
            raise ClusterError(f"{name} ended unexpectedly. End of {self.log(name)}:\n{self.log_end(name)}")

    def stop(self, name: str) -> None:
        """Ask the program to end, insist with SIGKILL after 5 s, and wait until it is gone."""
        pid = self.running(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        try:
            wait_until(lambda: self.running(name) is None, f"{name} to end", timeout_seconds=PATIENCE_SECONDS)
        except ClusterError:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.running(name) is None, f"{name} to be killed", timeout_seconds=KILL_SECONDS)

    def log_end(self, name: str, lines: int = 15) -> str:
        """Last lines of the program's output."""
        try:
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _remember(self, name: str, pid: int) -> None:
        identity = identify(pid)
        if identity is None:
            raise ClusterError(f"{name} ended at once. End of {self.log(name)}:\n{self.log_end(name)}")
        self._records.mkdir(parents=True, exist_ok=True)
        temporary = self._record(name).with_suffix(".new")
        temporary.write_text(json.dumps(asdict(identity)))
        temporary.replace(self._record(name))


def marked(variable: str, value: str) -> set[int]:
    """Processes whose environment, when they started, held ``variable=value``."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and wanted in _environment(folder):
            found.add(int(folder.name))
    return found


def kill_marked(variable: str, value: str) -> None:
    """SIGKILL the processes `marked` finds and wait until none is left."""

    def gone() -> bool:
        pids = marked(variable, value)
        for pid in pids:
            _kill_if_marked(pid, f"{variable}={value}".encode())
        return not pids

    wait_until(gone, f"processes marked {variable} to end", timeout_seconds=KILL_SECONDS, every_seconds=0.05)


def _kill_if_marked(pid: int, wanted: bytes) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Looked at again through the handle's lifetime: the id may have passed to another process meanwhile.
        if wanted in _environment(Path(f"/proc/{pid}")):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _environment(folder: Path) -> list[bytes]:
    deadline = time.monotonic() + EXEC_SECONDS
    try:
        while not (content := (folder / "environ").read_bytes()) and _becoming(folder):
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
    except OSError:
        return []
    return content.split(b"\0")


def _becoming(folder: Path) -> bool:
    """Whether the process is in the midst of exec: it is a program already, and its environment not yet in place."""
    (folder / "exe").readlink()  # a thread of the kernel has none, nor has a zombie
    return parse_environment_end((folder / "stat").read_text()) == 0
