"""Kubernetes in Docker: where a Docker engine and the program kind are installed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from .. import binaries
from ..builders import Builder, Docker
from ..cache import cache_root, locked
from ..errors import ClusterError
from ..kubectl import Kubectl
from ..settings import Settings
from ..shell import run, say, succeeds, wait_until

CLUSTER = "gradientmail-test"
UP_SECONDS = 900.0
APISERVER_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
APISERVER_ASIDE = "/etc/kubernetes/kube-apiserver.yaml"
READY_SECONDS = 120.0


def cluster_config(workers: int) -> str:
    """Configuration of kind: one control plane and a number of workers."""
    roles = ["control-plane", *["worker"] * workers]
    lines = ["kind: Cluster", "apiVersion: kind.x-k8s.io/v1alpha4", "nodes:", *(f"- role: {role}" for role in roles)]
    return "\n".join(lines) + "\n"


def container_of(node: str) -> str:
    """kind's own name of the worker that the tool calls ``node-N``; kind's names pass unchanged."""
    number = node.removeprefix("node-")
    if not number.isdigit():
        return node
    return f"{CLUSTER}-worker" + ("" if number == "1" else number)


class Kind:
    """A cluster made by kind; its workers are the nodes."""

    name = "kind"

    def missing(self) -> str:
        """A Docker engine that answers and the program kind are needed."""
        if shutil.which("kind") is None:
            return "the program kind is not on PATH"
        return "" if succeeds(["docker", "info"], timeout_seconds=10.0) else "no Docker engine answers (`docker info`)"

    def up(self, settings: Settings) -> None:
        """Create the cluster unless it exists, and give its workers pretend GPUs."""
        self._require()
        with self._locked("up"):
            if not self._exists():
                say("Creating a kind cluster")
                create = ["kind", "create", "cluster", "--name", CLUSTER, "--config", "-", "--wait", "120s"]
                create += ["--kubeconfig", str(self._file())]
                run(create, stdin=cluster_config(settings.nodes), timeout_seconds=UP_SECONDS)
            workers = [container_of(node) for node in settings.node_names]
            self._kubectl().wait_registered(workers)
            self._kubectl().pretend_gpus(workers, settings.gpus)
            self._kubectl().wait_ready(workers, settings.gpus)

    def down(self) -> None:
        """Delete the cluster."""
        self._require()
        with self._locked("down"):
            run(
                ["kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", self._file()],
                timeout_seconds=UP_SECONDS,
            )

    def leftovers(self) -> list[str]:
        """The cluster itself is all that can be left."""
        return [f"kind cluster {CLUSTER}"] if not self.missing() and self._exists() else []

    def status(self) -> list[str]:
        """Nodes of the cluster."""
        if self.missing() or not self._exists():
            return ["No cluster is up."]
        return [node.describe() for node in self._kubectl().nodes()]

    def kubeconfig(self) -> Path:
        """The kubeconfig that kind wrote."""
        if not self._file().exists():
            raise ClusterError("No cluster is up; run: python3 hack/cluster up")
        return self._file()

    def programs(self) -> list[Path]:
        """helm and kubectl, built if the machine has none."""
        folders = []
        for name, program in (("kubectl", binaries.KUBERNETES), ("helm", binaries.HELM)):
            if shutil.which(name) is None:
                folders.append(binaries.ensure(program))
        return folders

    def builder(self) -> Builder:
        """The Docker engine."""
        return Docker()

    def base_image(self) -> str | None:
        """Dockerfiles are built as they are."""
        return None

    def load(self, images: Sequence[str]) -> None:
        """Load images into every node."""
        self._require()
        with self._locked("load"):
            for image in images:
                what = "image-archive" if image.endswith(".tar") else "docker-image"
                run(["kind", "load", what, image, "--name", CLUSTER], timeout_seconds=UP_SECONDS)

    def kill_node(self, node: str) -> None:
        """SIGKILL the node's container, and all in it."""
        run(["docker", "kill", container_of(node)])

    def wait_not_ready(self, node: str) -> None:
        """Wait until the API server has noticed that a node failed."""
        self._kubectl().wait_not_ready(container_of(node))

    def start_node(self, node: str) -> None:
        """Start the node's container again."""
        run(["docker", "start", container_of(node)])
        self._kubectl().wait_ready([container_of(node)], 0)

    def stop_apiserver(self) -> None:
        """Take the API server's manifest from the kubelet, which then stops it."""
        self._control_plane("mv", APISERVER_MANIFEST, APISERVER_ASIDE)
        running = ["docker", "exec", f"{CLUSTER}-control-plane", "crictl", "ps", "--quiet", "--name", "kube-apiserver"]
        wait_until(lambda: not run(running).strip(), "the API server to end", timeout_seconds=READY_SECONDS)

    def start_apiserver(self) -> None:
        """Give the manifest back."""
        self._control_plane("mv", APISERVER_ASIDE, APISERVER_MANIFEST)
        wait_until(self._kubectl().answers, "the API server to be ready", timeout_seconds=READY_SECONDS)

    def _require(self) -> None:
        reason = self.missing()
        if reason:
            raise ClusterError(f"The provider kind cannot be used here: {reason}.")

    def _exists(self) -> bool:
        return CLUSTER in run(["kind", "get", "clusters"]).split()

    def _control_plane(self, *command: str) -> None:
        run(["docker", "exec", f"{CLUSTER}-control-plane", *command])

    @staticmethod
    def _file() -> Path:
        return cache_root() / "kind.kubeconfig"

    @staticmethod
    def _locked(doing: str) -> AbstractContextManager[None]:
        return locked(cache_root() / "kind.lock", doing)

    def _kubectl(self) -> Kubectl:
        program = shutil.which("kubectl") or str(binaries.ensure(binaries.KUBERNETES) / "kubectl")
        return Kubectl(program=program, kubeconfig=self.kubeconfig())
