"""How pip reaches its package index on this machine, handed to image builds without entering the image.

`pip config list` merges environment and files. The result is mounted as ``/etc/pip.conf`` while a build runs, with the
files it names beside it, so no index address and no certificate is written into a Dockerfile or an image.
"""

from __future__ import annotations

import ast
import configparser
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .shell import run

PIP_CONFIG = "/etc/pip.conf"
SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
FILE_OPTIONS = ("cert", "client-cert")
FOLDER_OPTIONS = ("find-links",)
# Of no use, or harmful, inside of a build.
IGNORED_OPTIONS = ("cache-dir", "log", "target", "prefix", "user", "require-virtualenv", "no-index")


@dataclass(frozen=True)
class Mount:
    """A path of this machine that a build sees, read-only, under another name."""

    source: Path
    target: str


def parse_config_list(text: str) -> dict[str, dict[str, str]]:
    """Sections and options from ``pip config list``; what the environment sets beats what files set."""
    environment: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {"global": {}}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if value and option not in IGNORED_OPTIONS:
            options = environment if section == ":env:" else sections.setdefault(section, {})
            options[option] = str(ast.literal_eval(value))
    for options in sections.values():
        for option in environment.keys() & options.keys():
            del options[option]
    sections["global"].update(environment)
    return sections


def mounts_for(sections: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, dict[str, str]], list[Mount]]:
    """The sections as a build must see them, and the files and folders they name."""
    seen: dict[str, dict[str, str]] = {}
    mounts: dict[str, Mount] = {}
    for section, options in sections.items():
        for option, value in options.items():
            source = Path(value)
            if option in FOLDER_OPTIONS and not _has_files(source):
                kept = value if "://" in value else None
            elif option in FILE_OPTIONS + FOLDER_OPTIONS:
                mounts[value] = Mount(source, _target(option, value))
                kept = mounts[value].target
            else:
                kept = value
            if kept is not None:
                seen.setdefault(section, {})[option] = kept
    return seen, list(mounts.values())


def prepare(folder: Path) -> list[Mount]:
    """Write the configuration into ``folder`` and return all that a build must see."""
    sections, mounts = mounts_for(parse_config_list(_config_list()))
    parser = configparser.RawConfigParser()
    parser.read_dict(sections)
    file = folder / "pip.conf"
    with file.open("w") as handle:
        parser.write(handle)
    system = Path(SYSTEM_CERTIFICATES)
    certificates = [Mount(system, SYSTEM_CERTIFICATES)] if system.exists() else []
    others = [mount for mount in mounts if mount.target != SYSTEM_CERTIFICATES]
    return [Mount(file, PIP_CONFIG), *certificates, *others]


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _target(option: str, value: str) -> str:
    if value == SYSTEM_CERTIFICATES:
        return value
    return f"/run/host-pip/{option}"


def _config_list() -> str:
    if shutil.which("python3") is None:
        return ""
    try:
        return run(["python3", "-m", "pip", "config", "list"])
    except ClusterError:
        # A machine without pip has no configuration of it either.
        return ""
