"""What the cluster changes on the machine outside its own folder, recorded so that it can be put back."""

from __future__ import annotations

import json
from pathlib import Path

# Programs of the cluster have these folders built in; every node covers them with folders of its own.
COVERED_FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
# Set by the tool because pods' packets need it.
NEEDED = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"}
# Set by kubelet when it starts.
CHANGED_BY_KUBELET = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
KERNEL_SETTINGS = Path("/proc/sys")


def prepare(record: Path) -> None:
    """Note the machine's state, unless a record tells it already, then make what the cluster needs."""
    if not record.exists():
        _write(record, {"settings": _settings(), "folders": _missing_folders()})
    for name, value in NEEDED.items():
        _set(name, value)
    for folder in COVERED_FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)


def restore(record: Path) -> None:
    """Put kernel settings back and remove the folders that were made; does nothing without a record."""
    if not record.exists():
        return
    noted = json.loads(record.read_text())
    for name, value in noted["settings"].items():
        _set(name, value)
    for folder in noted["folders"]:
        _remove_if_empty(Path(folder))


def mounts_under(folder: Path, mountinfo: str) -> list[Path]:
    """Mount points at or below a folder, the innermost first, from the text of ``/proc/self/mountinfo``."""
    points = [Path(line.split(" ")[4].replace("\\040", " ")) for line in mountinfo.splitlines()]
    below = [point for point in points if point == folder or folder in point.parents]
    return sorted(below, key=lambda point: len(point.parts), reverse=True)


def _settings() -> dict[str, str]:
    names = (*NEEDED, *CHANGED_BY_KUBELET)
    return {name: (KERNEL_SETTINGS / name).read_text().strip() for name in names if (KERNEL_SETTINGS / name).exists()}


def _set(name: str, value: str) -> None:
    file = KERNEL_SETTINGS / name
    if file.exists() and file.read_text().strip() != value:
        file.write_text(value)


def _missing_folders() -> list[str]:
    return [folder for folder in COVERED_FOLDERS if not Path(folder).exists()]


def _write(record: Path, content: dict[str, object]) -> None:
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps(content))
    temporary.replace(record)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
