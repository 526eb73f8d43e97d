"""Programs built from Go modules and kept in the cache under a name made from all that goes into them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache import cache_root, content_key, locked
from .errors import ClusterError
from .settings import HELM_VERSION, KUBERNETES_VERSION
from .shell import run, run_logged

SOURCES = Path(__file__).parent.parent
BUILD_SECONDS = 3600.0
NEEDED_GO = (1, 24)
PARALLEL_BUILDS = 2


@dataclass(frozen=True)
class Program:
    """One Go build; ``links`` are further names the program answers to."""

    name: str
    folder: Path
    package: str
    link_flags: str
    links: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the cached build: another for any change of sources, versions or flags."""
        files = sorted(file for file in self.folder.iterdir() if file.suffix in (".go", ".mod", ".sum"))
        return content_key(files, self.package, self.link_flags, *self.links)


def kubernetes_link_flags(version: str) -> str:
    """Flags that make ``kubectl version`` and node objects show the version."""
    major, minor, _ = version.split(".")
    base, client = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
    values = {
        f"{base}.gitVersion": f"v{version}",
        f"{base}.gitMajor": major,
        f"{base}.gitMinor": minor,
        f"{client}.gitVersion": f"v{version}",
        f"{client}.gitMajor": major,
        f"{client}.gitMinor": minor,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


KUBERNETES = Program(
    name="kube",
    folder=SOURCES / "kube",
    package=".",
    link_flags=kubernetes_link_flags(KUBERNETES_VERSION),
    links=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
)
HELM = Program(
    name="helm",
    folder=SOURCES / "helm",
    package="helm.sh/helm/v3/cmd/helm",
    link_flags=f"-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}",
)
PAUSE = Program(name="pause", folder=SOURCES / "pause", package=".", link_flags="-s -w")


def ensure(program: Program) -> Path:
    """Folder that holds the built program and its links; builds it first if the cache lacks it."""
    folder = _folder(program)
    with locked(cache_root() / "programs.lock", f"building {program.name}"):
        if not folder.exists():
            _build(program, folder)
    return folder


def _folder(program: Program) -> Path:
    return cache_root() / "programs" / f"{program.name}-{program.key}"


def parse_go_version(text: str) -> tuple[int, int]:
    """Major and minor number from the output of ``go version``; raises ValueError if there is none."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"no Go version in {text!r}")
    return int(match[1]), int(match[2])


def _build(program: Program, folder: Path) -> None:
    lack = _lack_of_go()
    if lack:
        raise ClusterError(f"{lack}; install a newer Go and try again.")
    unfinished = folder.with_name(folder.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command: Sequence[str] = ["go", "build", "-v", "-mod=readonly", "-trimpath", f"-p={PARALLEL_BUILDS}"]
    target = unfinished / program.name
    run_logged(
        f"Building {program.name} with Go" + (", some 7 minutes the first time" if program is KUBERNETES else ""),
        [*command, "-ldflags", program.link_flags, "-o", target, program.package],
        cache_root() / "logs" / f"build-{program.name}.log",
        timeout_seconds=BUILD_SECONDS,
        environment={**os.environ, "CGO_ENABLED": "0"},
        folder=program.folder,
    )
    for link in program.links:
        (unfinished / link).symlink_to(program.name)
    for old in folder.parent.glob(f"{program.name}-*"):
        if old != unfinished:
            shutil.rmtree(old)
    unfinished.rename(folder)


def missing() -> str:
    """What keeps programs from being built that the cache lacks; empty if nothing does."""
    return "" if all(_folder(program).exists() for program in (KUBERNETES, HELM, PAUSE)) else _lack_of_go()


def _lack_of_go() -> str:
    needed = ".".join(map(str, NEEDED_GO))
    if shutil.which("go") is None:
        return f"Go {needed} or newer, with which Kubernetes is built, is not on PATH"
    found = run(["go", "version"]).strip()
    if parse_go_version(found) < NEEDED_GO:
        return f"Go {needed} or newer is needed to build Kubernetes, and this is {found!r}"
    return ""
