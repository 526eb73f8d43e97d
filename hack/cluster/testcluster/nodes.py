"""One node of the bare cluster: a containerd and a kubelet of its own, in a mount namespace of its own.

Everything the node mounts is in that namespace and vanishes with its last process, so a killed node leaves no mounts,
and starting it again is like a machine that boots after a power cut: disks are kept, memory and mounts are gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import archives, cgroups, configs
from .errors import ClusterError
from .host import COVERED_FOLDERS
from .pki import Authority, write_private
from .processes import Supervisor
from .settings import Addresses
from .shell import run, run_logged, succeeds, wait_until

CONTAINERD_SECONDS = 60.0
IMPORT_SECONDS = 900.0
PARALLEL_IMPORTS = 2
COVER_AND_RUN = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 1; shift 2; done; shift; exec "$@"'
# A machine keeps these in memory: they do not outlive a power cut.
RUNTIME_FOLDER = "/run/containerd"
KUBELET_FOLDER = "/var/lib/kubelet"


@dataclass(frozen=True)
class NodeFiles:
    """What a node is started from."""

    kubernetes: Path
    network_plugins: Path
    pause_image: str
    pause_archive: Path


class Node:
    """One node; every method blocks until it is done."""

    def __init__(
        self, name: str, layout: configs.Layout, supervisor: Supervisor, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._layout = layout
        self._supervisor = supervisor
        self._environment = environment

    @property
    def containerd(self) -> str:
        """Name of the node's containerd among the supervised programs."""
        return f"containerd-{self.name}"

    @property
    def kubelet(self) -> str:
        """Name of the node's kubelet among the supervised programs."""
        return f"kubelet-{self.name}"

    def alive(self) -> bool:
        """Whether both programs run."""
        return all(self._supervisor.running(name) is not None for name in (self.containerd, self.kubelet))

    def start(self, addresses: Addresses, authority: Authority, files: NodeFiles) -> None:
        """Start what does not run; returns when kubelet has been started, not yet Ready."""
        if self.alive():
            return
        self.kill()
        self._write_configuration(addresses, authority, files)
        joins = cgroups.create(configs.daemons_group(self.name))
        cgroups.create(configs.pods_group(self.name))
        pid = self._start_containerd(joins)
        self.load([files.pause_archive])
        self._keep_gpus()
        inside = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--"]
        command = configs.kubelet(self._layout, self.name, addresses)
        command[0] = str(files.kubernetes / "kubelet")
        self._supervisor.start(self.kubelet, [*inside, *command], joins=joins, environment=self._environment)

    def kill(self) -> None:
        """SIGKILL kubelet, containerd, shims, then all pods, and wait until every process is gone."""
        # Pods last: containerd must not live to report them.
        cgroups.kill(configs.daemons_group(self.name))
        cgroups.kill(configs.pods_group(self.name))
        for folder in (self._layout.node(self.name) / "containerd/state", self._covered(RUNTIME_FOLDER)):
            shutil.rmtree(folder, ignore_errors=True)

    def images(self) -> dict[str, str]:
        """Name and digest of each image the node has."""
        return archives.parse_listing(run([*self._ctr(), "images", "list"]))

    def load(self, files: Sequence[Path]) -> None:
        """Import archives, those left out whose images the node has already."""
        present = self.images()
        for file in files:
            wanted = archives.images_in(file)
            if not wanted or not wanted.items() <= present.items():
                what = f"Loading {', '.join(wanted) or file.name} on {self.name}"
                log = self._supervisor.log(f"import-{self.name}")
                run_logged(what, [*self._ctr(), "images", "import", file], log, timeout_seconds=IMPORT_SECONDS)

    def _covered(self, folder: str) -> Path:
        return self._layout.covered(self.name, folder)

    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self._layout.socket(self.name)), "--namespace", "k8s.io"]

    def _write_configuration(self, addresses: Addresses, authority: Authority, files: NodeFiles) -> None:
        layout, name = self._layout, self.name
        layout.node(name).mkdir(parents=True, exist_ok=True)
        authority.issue(name, f"/O=system:nodes/CN=system:node:{name}", (f"IP:{addresses.node(name)}", f"DNS:{name}"))
        write_private(layout.kubeconfig(name), authority.kubeconfig(name, configs.server(addresses)))
        kubelet = configs.kubelet_config(layout, name, addresses, authority)
        (layout.configuration / f"kubelet-{name}.json").write_text(kubelet)
        containerd = configs.containerd_config(layout, name, files.network_plugins, files.pause_image)
        self._containerd_file().write_text(containerd)

    def _containerd_file(self) -> Path:
        return self._layout.configuration / f"containerd-{self.name}.toml"

    def _keep_gpus(self) -> None:
        """Have kubelet keep the pretend GPUs when it starts again: it resets them where this folder has no file."""
        folder = self._covered(KUBELET_FOLDER) / "device-plugins"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pretend-gpus").touch()

    def _start_containerd(self, joins: Sequence[Path]) -> int:
        command = ["unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", COVER_AND_RUN, "sh"]
        for folder in COVERED_FOLDERS:
            self._covered(folder).mkdir(parents=True, exist_ok=True)
            command += [str(self._covered(folder)), folder]
        command += ["--", "containerd", "--config", str(self._containerd_file())]
        self._layout.socket(self.name).unlink(missing_ok=True)
        pid = self._supervisor.start(self.containerd, command, joins=joins, environment=self._environment)
        wait_until(self._containerd_answers, f"{self.containerd} to answer", timeout_seconds=CONTAINERD_SECONDS)
        return pid

    def _containerd_answers(self) -> bool:
        self._supervisor.check(self.containerd)
        return self._layout.socket(self.name).exists() and succeeds([*self._ctr(), "version"], timeout_seconds=5.0)


def load_everywhere(nodes: Sequence[Node], files: Sequence[Path]) -> None:
    """Import archives on all nodes, two at a time; raises the first failure after all have ended."""
    if not nodes:
        raise ClusterError("No node is up; run: python3 hack/cluster up")
    with ThreadPoolExecutor(max_workers=PARALLEL_IMPORTS) as pool:
        list(pool.map(lambda node: node.load(files), nodes))
