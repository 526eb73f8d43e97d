"""The cluster of a session and the ways to reach it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cluster.harness.api import NODES, Api
from tests.cluster.harness.images import Images
from tests.cluster.harness.tool import Helm, Kubectl, Tool


@dataclass(frozen=True)
class Site:
    """A cluster that is up, with the images under test on its nodes."""

    tool: Tool
    api: Api
    kubectl: Kubectl
    helm: Helm
    images: Images

    def hosts(self) -> list[str]:
        """Names of the nodes that take pods. What must survive is kept on the first; tests kill the last."""
        return sorted(
            node["metadata"]["name"]
            for node in self.api.list(NODES)
            if not any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints") or [])
        )
