"""Building images from Dockerfiles without a registry: with Docker where an engine answers, else with buildah."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import pipconfig
from .cache import cache_root, locked
from .errors import ClusterError
from .shell import run, run_logged, succeeds

BUILD_SECONDS = 3600.0
PASSED_TO_DOCKER = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclass(frozen=True)
class Build:
    """One image to build."""

    file: Path
    tag: str
    context: Path
    arguments: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse what is not there before anything long is started."""
        if not self.file.is_file():
            raise ClusterError(f"--file {self.file} does not exist; give the path of a Dockerfile.")
        if not self.context.is_dir():
            raise ClusterError(
                f"The build's folder {self.context} does not exist; give the folder that the Dockerfile copies from."
            )


class Builder(Protocol):
    """Builds images and writes them to archives."""

    def build(self, build: Build) -> None:
        """Build an image from a Dockerfile, with layers cached."""

    def image_id(self, tag: str) -> str:
        """Identity of an image's content; raises `ClusterError` if there is no such image."""

    def export(self, tag: str, archive: Path) -> None:
        """Write an image to an archive that `ctr images import` reads."""


class Buildah:
    """buildah with storage of its own, in a mount namespace of its own so that no mount outlives a build."""

    def __init__(self) -> None:
        store = cache_root() / "buildah"
        self._command = ["unshare", "--mount", "--propagation", "private", "buildah"]
        self._command += ["--root", str(store / "storage"), "--runroot", str(store / "run")]

    def build(self, build: Build) -> None:
        """Build an image; the machine's pip configuration is visible to the build but not in the image."""
        with tempfile.TemporaryDirectory(prefix="gradientmail-build-") as folder:
            volumes = [f"{mount.source}:{mount.target}:ro" for mount in pipconfig.prepare(Path(folder))]
            command = [*self._command, "bud", "--isolation", "chroot", "--network", "host", "--layers", "--pull-never"]
            command += _repeated("--volume", volumes) + _arguments(build.arguments)
            command += ["--file", str(build.file), "--tag", build.tag, str(build.context)]
            _run_build(build.tag, command)

    def has(self, tag: str) -> bool:
        """Whether an image of that name exists."""
        return succeeds([*self._command, "inspect", "--type", "image", tag])

    def image_id(self, tag: str) -> str:
        """Identity of an image's content."""
        if not self.has(tag):
            raise _unknown(tag)
        return run([*self._command, "inspect", "--type", "image", "--format", "{{.FromImageID}}", tag]).strip()

    def export(self, tag: str, archive: Path) -> None:
        """Write an OCI archive, barely compressed: it is read once or twice on this very machine."""
        # An OCI archive is compressed whatever --disable-compression says, by default with gzip, which takes minutes.
        quick = ["--compression-format", "zstd", "--compression-level", "1"]
        _run_export(tag, [*self._command, "push", *quick, tag, f"oci-archive:{archive}:{tag}"])


class Docker:
    """A Docker engine; how it reaches package indexes is the engine's own configuration."""

    def build(self, build: Build) -> None:
        """Build an image on the engine."""
        command = ["docker", "build", "--network", "host", *_arguments(build.arguments)]
        # Without a value Docker takes it from the environment, so it stands in no command line.
        command += _repeated("--build-arg", [name for name in PASSED_TO_DOCKER if name in os.environ])
        command += ["--file", str(build.file), "--tag", build.tag, str(build.context)]
        _run_build(build.tag, command)

    def image_id(self, tag: str) -> str:
        """Identity of an image's content."""
        if not succeeds(["docker", "image", "inspect", tag]):
            raise _unknown(tag)
        return run(["docker", "image", "inspect", "--format", "{{.Id}}", tag]).strip()

    def export(self, tag: str, archive: Path) -> None:
        """Write an archive."""
        _run_export(tag, ["docker", "save", "--output", str(archive), tag])


def archive_of(builder: Builder, tag: str) -> Path:
    """Archive of an image, written once for each content of the image."""
    identity = builder.image_id(tag).removeprefix("sha256:")[:16]
    folder = cache_root() / "archives" / file_name(tag)
    archive = folder / f"{identity}.tar"
    with locked(cache_root() / "archives.lock", f"exporting {tag}"):
        if not archive.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            unfinished = archive.with_suffix(".new")
            builder.export(tag, unfinished)
            unfinished.rename(archive)
    return archive


def file_name(tag: str) -> str:
    """An image's name as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", tag)


def parse_arguments(words: Sequence[str]) -> dict[str, str]:
    """Build arguments given as ``NAME=VALUE``."""
    found = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise ClusterError(f"--build-arg {word!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def _run_build(tag: str, command: list[str]) -> None:
    log = cache_root() / "logs" / f"image-{file_name(tag)}.log"
    run_logged(f"Building image {tag}", command, log, timeout_seconds=BUILD_SECONDS)


def _run_export(tag: str, command: list[str]) -> None:
    log = cache_root() / "logs" / f"export-{file_name(tag)}.log"
    run_logged(f"Writing image {tag} to an archive", command, log, timeout_seconds=BUILD_SECONDS)


def _arguments(arguments: Mapping[str, str]) -> list[str]:
    return _repeated("--build-arg", [f"{name}={value}" for name, value in arguments.items()])


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _unknown(tag: str) -> ClusterError:
    return ClusterError(
        f"There is no image {tag!r} here; build it first: python3 hack/cluster build --file F --tag {tag} FOLDER"
    )
