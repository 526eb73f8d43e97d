"""Reading OCI image archives: which images a file holds, so that a node which has them is left alone."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from .errors import ClusterError

NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def images_in(archive: Path) -> dict[str, str]:
    """Name and digest of each image in an OCI archive; empty for an archive of Docker's own format."""
    try:
        with tarfile.open(archive) as tar:
            handle = tar.extractfile("index.json")
            return parse_index(handle.read().decode()) if handle else {}
    except KeyError:
        return {}
    except (OSError, tarfile.TarError) as error:
        raise ClusterError(
            f"{archive} is not an image archive ({error}); give a .tar file or the name of an image."
        ) from None


def parse_index(text: str) -> dict[str, str]:
    """Name and digest of each image in the text of an OCI ``index.json``."""
    found = {}
    for manifest in json.loads(text).get("manifests", ()):
        annotations = manifest.get("annotations", {})
        name = next((annotations[key] for key in NAME_ANNOTATIONS if key in annotations), None)
        if name is not None:
            found[name] = manifest["digest"]
    return found


def parse_listing(text: str) -> dict[str, str]:
    """Name and digest of each image in the output of ``ctr images list``."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}
