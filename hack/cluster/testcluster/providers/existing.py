"""Any cluster that a kubeconfig leads to; the tool only uses it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..builders import Buildah, Builder, Docker
from ..errors import ClusterError
from ..kubectl import Kubectl
from ..settings import Settings
from ..shell import succeeds

KUBECONFIG_VARIABLE = "GRADIENTMAIL_TEST_KUBECONFIG"


class Existing:
    """The cluster of the kubeconfig that ``GRADIENTMAIL_TEST_KUBECONFIG`` names."""

    name = "existing"

    def missing(self) -> str:
        """Nothing but the variable and kubectl is needed."""
        if not os.environ.get(KUBECONFIG_VARIABLE):
            return f"{KUBECONFIG_VARIABLE} is not set to a kubeconfig"
        return "" if shutil.which("kubectl") else "kubectl is not on PATH"

    def up(self, _: Settings, /) -> None:
        """Check that the cluster answers and has nodes that are Ready; its own settings stand."""
        kubectl = self._kubectl()
        if not kubectl.answers():
            raise ClusterError(
                f"The cluster of {self.kubeconfig()} does not answer; check {KUBECONFIG_VARIABLE} and your access."
            )
        if not any(node.ready for node in kubectl.nodes()):
            raise ClusterError(f"The cluster of {self.kubeconfig()} has no node that is Ready.")

    def down(self) -> None:
        """Leave the cluster as it is: it is not the tool's."""

    def leftovers(self) -> list[str]:
        """Nothing is ever left on this machine."""
        return []

    def status(self) -> list[str]:
        """The cluster's nodes."""
        return [node.describe() for node in self._kubectl().nodes()]

    def kubeconfig(self) -> Path:
        """The file the variable names."""
        file = Path(os.environ.get(KUBECONFIG_VARIABLE, "")).expanduser()
        if not file.is_file():
            raise ClusterError(f"{KUBECONFIG_VARIABLE} is {str(file)!r}, which is no file; set it to a kubeconfig.")
        return file.absolute()

    def programs(self) -> list[Path]:
        """Those already on PATH are used."""
        return []

    def builder(self) -> Builder:
        """Docker if an engine answers, else buildah."""
        return Docker() if succeeds(["docker", "info"], timeout_seconds=10.0) else Buildah()

    def base_image(self) -> str | None:
        """Dockerfiles are built as they are."""
        return None

    def load(self, images: Sequence[str]) -> None:
        """Refused: only the cluster's owner knows how it gets images."""
        raise ClusterError(
            f"Images cannot be loaded into an existing cluster; push {', '.join(images)} to a registry it pulls from."
        )

    def kill_node(self, node: str) -> None:
        """Refused: the machines are not the tool's."""
        raise self._refusal(f"kill {node}")

    def wait_not_ready(self, node: str) -> None:
        """Wait for a node that failed by itself."""
        self._kubectl().wait_not_ready(node)

    def start_node(self, node: str) -> None:
        """Refused: the machines are not the tool's."""
        raise self._refusal(f"start {node}")

    def stop_apiserver(self) -> None:
        """Refused: the API server is not the tool's."""
        raise self._refusal("stop the API server")

    def start_apiserver(self) -> None:
        """Refused: the API server is not the tool's."""
        raise self._refusal("start the API server")

    def _kubectl(self) -> Kubectl:
        return Kubectl(program="kubectl", kubeconfig=self.kubeconfig())

    @staticmethod
    def _refusal(deed: str) -> ClusterError:
        return ClusterError(f"The tool does not {deed} of an existing cluster; use --provider bare or kind for that.")
