"""Control groups: the kernel's own record of which processes belong to the cluster.

Every program the tool starts, and every container of every pod, lives in a group under one folder. A process cannot
leave it by forking or by outliving its parent, so whatever is found in it is the cluster's, after any kind of crash.
Works with version 1 hierarchies (each controller mounted apart) and with version 2 (one hierarchy).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .shell import wait_until

ROOT = "gradientmail-cluster"
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
# A process that waits for a busy disk dies only when the disk has answered.
KILL_SECONDS = 120.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted control-group hierarchy."""

    mount: Path
    version: int


def parse_hierarchies(mountinfo: str) -> tuple[Hierarchy, ...]:
    """Hierarchies named in the text of ``/proc/self/mountinfo``, version 2 left out where version 1 is in use."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind = after.split(" ", 1)[0]
        if kind in ("cgroup", "cgroup2"):
            found.append(Hierarchy(mount=Path(before.split(" ")[4]), version=2 if kind == "cgroup2" else 1))
    first = tuple(hierarchy for hierarchy in found if hierarchy.version == 1)
    return first or tuple(found)


def hierarchies() -> tuple[Hierarchy, ...]:
    """Hierarchies mounted on this machine; empty where there are none."""
    return parse_hierarchies(Path("/proc/self/mountinfo").read_text())


def create(group: str) -> tuple[Path, ...]:
    """Create ``ROOT/group`` in every hierarchy and return the files that take a process into it."""
    joins = []
    for hierarchy in hierarchies():
        folder = hierarchy.mount
        for part in (ROOT, *group.split("/")):
            folder = folder / part
            _create_folder(folder)
        joins.append(folder / "cgroup.procs")
    return tuple(joins)


def members(group: str = "") -> set[int]:
    """Process ids in ``ROOT/group`` and below."""
    pids: set[int] = set()
    for folder in _folders(group):
        pids.update(_read_pids(folder / "cgroup.procs"))
    return pids


def kill(group: str = "") -> None:
    """SIGKILL everything in ``ROOT/group`` and wait until it is gone; raises `ClusterError` after 2 minutes."""

    def emptied() -> bool:
        pids = members(group)
        for pid in pids:
            _kill_member(pid)
        return not pids

    wait_until(
        emptied, f"processes in control group {ROOT}/{group} to end", timeout_seconds=KILL_SECONDS, every_seconds=0.05
    )


def remove(group: str = "") -> None:
    """Remove the emptied folders of ``ROOT/group``; raises `ClusterError` if one stays busy for 10 s."""
    deadline = time.monotonic() + 10.0
    for folder in _folders(group):
        _remove_folder(folder, deadline)


def leftovers() -> list[str]:
    """The tool's folders that exist, as phrases."""
    tops = [hierarchy.mount / ROOT for hierarchy in hierarchies()]
    return [f"control group {top}" for top in tops if top.exists()]


def _folders(group: str) -> Iterator[Path]:
    """All folders of a group in every hierarchy, deepest first."""
    for hierarchy in hierarchies():
        top = hierarchy.mount / ROOT / group
        for folder, _, _ in os.walk(top, topdown=False):
            yield Path(folder)


def _create_folder(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in CPUSET_FILES:
        file, above = folder / name, folder.parent / name
        # Version 1 starts a cpuset empty, and nothing can join it until both lists are filled.
        if file.exists() and above.exists() and not file.read_text().strip():
            file.write_text(above.read_text())


def _remove_folder(folder: Path, deadline: float) -> None:
    while folder.exists():
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ClusterError(f"Control group {folder} cannot be removed ({error.strerror}).") from None
            time.sleep(0.05)


def _read_pids(file: Path) -> set[int]:
    try:
        return {int(word) for word in file.read_text().split()}
    except OSError:
        return set()


def _kill_member(pid: int) -> None:
    if pid > 1:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
