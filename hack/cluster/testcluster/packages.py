"""Debian packages the bare cluster needs: installed when root, otherwise named with the command that would."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import ClusterError
from .shell import run, run_logged, say, succeeds

INSTALL_SECONDS = 900.0
# By program, not by package: another package may bring it, as Docker's own brings containerd.
PROGRAMS: Mapping[str, str] = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "promtool": "prometheus",
}
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGINS = ("bridge", "host-local", "loopback")
PLUGIN_PACKAGE = "containernetworking-plugins"
POLICY = Path("/usr/sbin/policy-rc.d")
UNITS = Path("/lib/systemd/system")


def missing() -> list[str]:
    """Packages whose programs this machine lacks."""
    packages = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if plugin_folder() is None:
        packages.add(PLUGIN_PACKAGE)
    return sorted(packages)


def plugin_folder() -> Path | None:
    """Folder that holds the container network plugins, if they are installed."""
    for folder in PLUGIN_FOLDERS:
        if all((folder / plugin).exists() for plugin in PLUGINS):
            return folder
    return None


def ensure(log: Path) -> None:
    """Install what is missing; raises `ClusterError` with the command to run where that is not possible."""
    packages = missing()
    if packages:
        install(packages, log)


def ensure_program(program: str, log: Path) -> Path:
    """Path of one of PROGRAMS, which is installed first if it is missing; raises as `ensure` does."""
    if shutil.which(program) is None:
        install([PROGRAMS[program]], log)
    return Path(shutil.which(program) or program)


def install(packages: Sequence[str], log: Path) -> None:
    """Install Debian packages without starting their services; raises as `ensure` does."""
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "--no-remove", *packages]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"Debian packages are missing; run: sudo apt-get update && sudo {shlex.join(command)}")
    run_logged("Updating the list of Debian packages", ["apt-get", "update"], log, timeout_seconds=INSTALL_SECONDS)
    units_before = _units()
    with services_held_back():
        what = f"Installing {' '.join(packages)}"
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run_logged(what, command, log, timeout_seconds=INSTALL_SECONDS, environment=environment)
    _disable(_units() - units_before)


@contextmanager
def services_held_back() -> Iterator[None]:
    """Keep Debian packages from starting their services meanwhile: a policy script that answers "forbidden"."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _units() -> set[str]:
    return {file.name for file in UNITS.glob("*.service")} if UNITS.exists() else set()


def _disable(units: set[str]) -> None:
    """Keep new services from starting at the next boot: the cluster starts these programs itself."""
    if not units or shutil.which("systemctl") is None:
        return
    for unit in sorted(units):
        if succeeds(["systemctl", "is-enabled", unit]):
            run(["systemctl", "disable", unit])
            say(f"Disabled the service {unit}, which a package enabled")
