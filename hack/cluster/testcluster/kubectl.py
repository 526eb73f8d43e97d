"""The few questions and changes the tool itself puts to an API server, through kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ClusterError
from .settings import GPU_RESOURCE
from .shell import run, succeeds, wait_until

READY_SECONDS = 120.0


@dataclass(frozen=True)
class Node:
    """One node as the API server knows it."""

    name: str
    ready: bool
    gpus: int

    def describe(self) -> str:
        """The node in a few words."""
        return f"{self.name}: {'Ready' if self.ready else 'NotReady'}, {self.gpus} GPUs"


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Nodes in the output of ``kubectl get nodes -o json``."""
    return tuple(_node(item) for item in json.loads(text)["items"])


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig."""

    program: str
    kubeconfig: Path

    def run(self, *arguments: str) -> str:
        """Output of a kubectl command; raises `ClusterError` when it fails."""
        return run([self.program, "--kubeconfig", self.kubeconfig, "--request-timeout=10s", *arguments])

    def answers(self) -> bool:
        """Whether the API server says that it is ready."""
        options = ["--kubeconfig", str(self.kubeconfig), "--request-timeout=5s"]
        return succeeds([self.program, *options, "get", "--raw", "/readyz"], timeout_seconds=10.0)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return parse_nodes(self.run("get", "nodes", "--output=json"))

    def pretend_gpus(self, names: Iterable[str], count: int) -> None:
        """Give nodes a number of GPUs that exist on paper; kubelet keeps them and the scheduler counts them."""
        path = "/status/capacity/" + GPU_RESOURCE.replace("/", "~1")
        patch = json.dumps([{"op": "add", "path": path, "value": str(count)}])
        for name in names:
            self.run("patch", "node", name, "--subresource=status", "--type=json", f"--patch={patch}")

    def wait_registered(self, names: Iterable[str]) -> None:
        """Wait until all of these nodes exist."""
        wanted = set(names)
        wait_until(
            lambda: wanted <= {node.name for node in self._nodes_or_none()},
            f"nodes {', '.join(sorted(wanted))} to register",
            timeout_seconds=READY_SECONDS,
        )

    def wait_ready(self, names: Iterable[str], gpus: int) -> None:
        """Wait until all of these nodes are Ready and offer at least so many GPUs."""
        wanted = set(names)
        wait_until(
            lambda: wanted <= {node.name for node in self._nodes_or_none() if node.ready and node.gpus >= gpus},
            f"nodes {', '.join(sorted(wanted))} to be Ready with {gpus} GPUs",
            timeout_seconds=READY_SECONDS,
            hint="`kubectl describe node` and the logs of kubelet say why.",
        )

    def wait_not_ready(self, name: str) -> None:
        """Wait until the API server has noticed that a node is gone."""
        wait_until(
            lambda: any(node.name == name and not node.ready for node in self._nodes_or_none()),
            f"{name} to be NotReady",
            timeout_seconds=READY_SECONDS,
            every_seconds=0.5,
        )

    def _nodes_or_none(self) -> tuple[Node, ...]:
        try:
            return self.nodes()
        except ClusterError:
            return ()


def _node(item: dict[str, Any]) -> Node:
    conditions = item["status"].get("conditions", ())
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    gpus = int(item["status"].get("allocatable", {}).get(GPU_RESOURCE, "0"))
    return Node(name=item["metadata"]["name"], ready=ready, gpus=gpus)
