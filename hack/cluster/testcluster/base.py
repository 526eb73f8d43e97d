"""The images a bare machine cannot pull: a Debian with Python for Dockerfiles to start from, and the pause image."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from . import binaries
from .builders import Build, Buildah, archive_of
from .cache import cache_root, content_key, locked
from .errors import ClusterError
from .shell import run, run_logged

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
MIRROR_VARIABLE = "GRADIENTMAIL_CLUSTER_MIRROR"
DEBOOTSTRAP_SECONDS = 1800.0
# Documentation and downloaded packages are dead weight in a test image.
TRIMMED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log", "dev")
CONTAINERFILE = """\
FROM scratch
COPY . /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
"""
PAUSE_CONTAINERFILE = """\
FROM scratch
COPY pause /pause
USER 65535:65535
ENTRYPOINT ["/pause"]
"""


def base_tag() -> str:
    """Name of the base image; another for any change of how it is made."""
    return f"localhost/gradientmail-python:{SUITE}-{content_key([], SUITE, PACKAGES, CONTAINERFILE, *TRIMMED)}"


def pause_tag() -> str:
    """Name of the pause image; another for any change of its program."""
    return f"localhost/gradientmail-pause:{binaries.PAUSE.key}"


def ensure_base(builder: Buildah) -> str:
    """Name of the base image, made with debootstrap if it does not exist yet (about 2 minutes)."""
    tag = base_tag()
    with locked(cache_root() / "base.lock", "making the base image"):
        if not builder.has(tag):
            with tempfile.TemporaryDirectory(prefix="debian-", dir=_work_folder()) as folder:
                _make_base(builder, tag, Path(folder))
    return tag


def pause_archive(builder: Buildah) -> Path:
    """Archive of the pause image, made if it does not exist yet."""
    program = binaries.ensure(binaries.PAUSE)
    tag = pause_tag()
    with locked(cache_root() / "base.lock", "making the pause image"):
        if not builder.has(tag):
            with tempfile.TemporaryDirectory(prefix="pause-") as folder:
                file = Path(folder) / "Containerfile"
                file.write_text(PAUSE_CONTAINERFILE)
                builder.build(Build(file=file, tag=tag, context=program, arguments={}))
    return archive_of(builder, tag)


def parse_index_targets(text: str) -> str | None:
    """Debian mirror from lines of origin, address, component and suite that apt-get printed; None if there is none."""
    for line in text.splitlines():
        origin, address, component, suite = line.split("|")
        if origin == "Debian" and component == "main" and "security" not in suite and "security" not in address:
            return address
    return None


def _mirror() -> str:
    given = os.environ.get(MIRROR_VARIABLE)
    fields = "$(ORIGIN)|$(REPO_URI)|$(COMPONENT)|$(RELEASE)"
    found = given or parse_index_targets(run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]))
    if not found:
        raise ClusterError(
            f"apt knows no Debian mirror to make the base image from; set {MIRROR_VARIABLE} to a mirror's address."
        )
    return found


def _make_base(builder: Buildah, tag: str, folder: Path) -> None:
    command = ["unshare", "--mount", "--propagation", "private", "debootstrap", "--variant=minbase"]
    command += [f"--include={PACKAGES}", SUITE, str(folder / "root"), _mirror()]
    log = cache_root() / "logs" / "debootstrap.log"
    run_logged("Making a small Debian with Python", command, log, timeout_seconds=DEBOOTSTRAP_SECONDS)
    for path in TRIMMED:
        _empty(folder / "root" / path)
    # Something for pip's configuration to be mounted on during builds.
    (folder / "root/etc/pip.conf").touch()
    (folder / "Containerfile").write_text(CONTAINERFILE)
    builder.build(Build(file=folder / "Containerfile", tag=tag, context=folder / "root", arguments={}))


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _work_folder() -> Path:
    folder = cache_root() / "work"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
