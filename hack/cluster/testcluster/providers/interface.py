"""What every provider of a cluster can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..builders import Builder
from ..settings import Settings


class Provider(Protocol):
    """A source of a Kubernetes cluster; all methods block until done and raise `ClusterError`."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    def missing(self) -> str:
        """What this machine lacks for this provider; empty if nothing."""

    def up(self, settings: Settings, /) -> None:
        """Bring up a cluster, or complete the one that runs; returns when all nodes are Ready."""

    def down(self) -> None:
        """Take the cluster away with all it left on the machine; does nothing if there is none."""

    def leftovers(self) -> list[str]:
        """What is left of a cluster on this machine, a phrase each."""

    def status(self) -> list[str]:
        """Lines that say what runs."""

    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""

    def programs(self) -> list[Path]:
        """Folders with kubectl and helm, to be put on PATH."""

    def builder(self) -> Builder:
        """Builder whose images `load` knows by name."""

    def base_image(self) -> str | None:
        """Image to build on where no registry is reached; None where Dockerfiles are built as they are."""

    def load(self, images: Sequence[str]) -> None:
        """Put images, by name or by archive file, on every node."""

    def kill_node(self, node: str) -> None:
        """Fail a node at once, as a power cut would."""

    def wait_not_ready(self, node: str) -> None:
        """Wait until the API server has noticed that a node failed."""

    def start_node(self, node: str) -> None:
        """Bring a failed node back and wait until it is Ready."""

    def stop_apiserver(self) -> None:
        """Stop the API server and wait until it is gone."""

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
