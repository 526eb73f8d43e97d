"""A Kubernetes on this very machine, without container engine, registry or service manager.

Assumes root on a Debian with control groups and bridge devices; Go programs are built once and kept. All that it makes
is in one folder, one control group and one private range of addresses, and `down` removes it in whatever state it is.
Commands that change the cluster hold a lock, so that two callers cannot meet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .. import base, binaries, cgroups, configs, host, network, packages, processes
from ..builders import Buildah, Builder, archive_of
from ..cache import cache_root, locked
from ..controlplane import ADMINISTRATOR, ETCD, ControlPlane
from ..errors import ClusterError
from ..kubectl import Kubectl
from ..nodes import Node, NodeFiles, load_everywhere
from ..pki import Authority
from ..settings import Addresses, Settings
from ..shell import run, say

FOLDER = Path("/var/lib/gradientmail-cluster")
LOCK = Path("/run/lock/gradientmail-cluster.lock")
# Every process of the cluster outside its pods carries this in its environment.
MARK = "GRADIENTMAIL_CLUSTER_FOLDER"
UP_FIRST = "No cluster is up; run: python3 hack/cluster up"


class Bare:
    """The cluster of this machine; there is at most one."""

    name = "bare"

    def __init__(self) -> None:
        self._layout = configs.Layout(FOLDER)
        self._supervisor = processes.Supervisor(self._layout.records, cache_root() / "logs" / "cluster")
        self._environment = {**os.environ, MARK: str(FOLDER)}
        self._environment.pop("KUBECONFIG", None)

    def missing(self) -> str:
        """Root, apt-get or all programs, control groups and (first time) Go are needed."""
        if os.geteuid() != 0:
            return "it needs root"
        if packages.missing() and shutil.which("apt-get") is None:
            return f"not a Debian, and these are missing: {', '.join(packages.missing())}"
        if not cgroups.hierarchies():
            return "no control groups are mounted under /sys/fs/cgroup"
        return binaries.missing()

    def exists(self) -> bool:
        """Whether a cluster, or a remainder of one, is on this machine."""
        return self._layout.settings.exists()

    def up(self, settings: Settings) -> None:
        """Start a cluster, keep the one that runs, complete one that lacks nodes, or replace a dead one."""
        self._require()
        packages.ensure(cache_root() / "logs" / "packages.log")
        self.programs()
        files = self._node_files()
        with self._locked("up"):
            if self._supervisor.running(ETCD) is None:
                self._begin(settings)
            self._check_same(settings)
            self._start(settings, files)

    def down(self) -> None:
        """Kill every process of the cluster, wait for all, and remove all else."""
        self._require()
        with self._locked("down"):
            if FOLDER.exists():
                say("Taking the cluster down: seconds, or minutes while the disk is busy")
            self._remove()

    def leftovers(self) -> list[str]:
        """Processes, mounts, links, rules, control groups and folders that exist."""
        self._require()
        pids = processes.marked(MARK, str(FOLDER)) | cgroups.members()
        found = [f"process {pid} ({_command_of(pid)})" for pid in sorted(pids)]
        found += [f"mount {point}" for point in self._mounts()]
        found += network.leftovers()
        found += cgroups.leftovers()
        return found + ([f"folder {FOLDER}"] if FOLDER.exists() else [])

    def status(self) -> list[str]:
        """State of the control plane and of each node."""
        if not self.exists():
            return ["No cluster is up."]
        self._require()
        if self._supervisor.running(ETCD) is None:
            return ["No cluster is up. What is left of one is replaced by `up` and removed by `down`."]
        settings = self._settings()
        names = (ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
        lines = [f"{name}: {self._process_state(name)}" for name in names]
        known = {node.name: node for node in self._kubectl().nodes()} if self._kubectl().answers() else {}
        for name in settings.node_names:
            node = known.get(name)
            seen = node.describe() if node else f"{name}: unknown to the API server"
            lines.append(f"{seen} ({'running' if self._node(name).alive() else 'stopped'})")
        return lines

    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        self._require()
        file = self._layout.kubeconfig(ADMINISTRATOR)
        if not file.exists():
            raise ClusterError(UP_FIRST)
        return file

    def programs(self) -> list[Path]:
        """kubectl of the cluster's version, and helm."""
        return [binaries.ensure(binaries.KUBERNETES), binaries.ensure(binaries.HELM)]

    def builder(self) -> Builder:
        """buildah."""
        self._require()
        packages.ensure(cache_root() / "logs" / "packages.log")
        return Buildah()

    def base_image(self) -> str | None:
        """The Debian with Python that debootstrap makes."""
        self._require()
        packages.ensure(cache_root() / "logs" / "packages.log")
        return base.ensure_base(Buildah())

    def load(self, images: Sequence[str]) -> None:
        """Import images into every running node."""
        files = [Path(image) if image.endswith(".tar") else archive_of(self.builder(), image) for image in images]
        with self._changing("load"):
            load_everywhere([node for node in self._nodes() if node.alive()], files)

    def kill_node(self, node: str) -> None:
        """SIGKILL all of a node."""
        with self._changing("kill-node"):
            self._known(node).kill()

    def wait_not_ready(self, node: str) -> None:
        """Wait until the API server has noticed that a node failed."""
        self._kubectl().wait_not_ready(self._known(node).name)

    def start_node(self, node: str) -> None:
        """Start a node again and wait until it is Ready with its GPUs."""
        with self._changing("start-node"):
            self._start_nodes([self._known(node)], self._settings(), self._node_files())

    def stop_apiserver(self) -> None:
        """Stop the API server and wait until it is gone."""
        with self._changing("stop-apiserver"):
            self._control_plane().stop_apiserver()

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        with self._changing("start-apiserver"):
            self._control_plane().start_apiserver(self._settings(), self._authority())

    def _begin(self, settings: Settings) -> None:
        """Remove what a dead cluster left, check the machine, and note what is about to be changed."""
        if FOLDER.exists():
            say("Removing what an earlier cluster left")
            self._remove()
        elif network.has_proxy_chains():
            raise ClusterError(
                "This machine's packet filter holds chains of another Kubernetes (KUBE-…); "
                "use that one with --provider existing, or take it down first."
            )
        addresses = Addresses.within(settings.network)
        network.check_free(addresses)
        self._supervisor.set_logs_aside()
        FOLDER.mkdir(mode=0o755, parents=True)
        self._layout.settings.write_text(settings.to_json())

    def _start(self, settings: Settings, files: NodeFiles) -> None:
        addresses = Addresses.within(settings.network)
        host.prepare(self._layout.host_record)
        network.up(addresses, settings.node_names)
        for folder in (self._layout.configuration, self._layout.network_plugins):
            folder.mkdir(mode=0o700, exist_ok=True)
        (self._layout.network_plugins / "10-pods.conflist").write_text(configs.pod_network(self._layout, addresses))
        self._control_plane().start(settings, self._authority())
        self._start_nodes(self._nodes(), settings, files)

    def _start_nodes(self, nodes: Sequence[Node], settings: Settings, files: NodeFiles) -> None:
        addresses, authority = Addresses.within(settings.network), self._authority()
        for node in nodes:
            node.start(addresses, authority, files)
        names = [node.name for node in nodes]
        kubectl = self._kubectl()
        kubectl.wait_registered(names)
        kubectl.pretend_gpus(names, settings.gpus)
        kubectl.wait_ready(names, settings.gpus)

    def _remove(self) -> None:
        cgroups.kill()
        processes.kill_marked(MARK, str(FOLDER))
        for point in self._mounts():
            run(["umount", "--lazy", point])
        network.down(proxy_chains=FOLDER.exists())
        cgroups.remove()
        host.restore(self._layout.host_record)
        if FOLDER.exists():
            shutil.rmtree(FOLDER)

    def _check_same(self, settings: Settings) -> None:
        running = self._settings()
        if running != settings:
            raise ClusterError(
                f"A cluster with other settings is up ({running.to_json()}); "
                "give the same options, or run `python3 hack/cluster down` first."
            )

    def _node_files(self) -> NodeFiles:
        plugins = packages.plugin_folder()
        if plugins is None:
            raise ClusterError("The container network plugins are missing; run: python3 hack/cluster up")
        return NodeFiles(
            kubernetes=binaries.ensure(binaries.KUBERNETES),
            network_plugins=plugins,
            pause_image=base.pause_tag(),
            pause_archive=base.pause_archive(Buildah()),
        )

    def _settings(self) -> Settings:
        return Settings.from_json(self._layout.settings.read_text())

    def _authority(self) -> Authority:
        return Authority(self._layout.keys)

    def _control_plane(self) -> ControlPlane:
        kubernetes = binaries.ensure(binaries.KUBERNETES)
        return ControlPlane(self._layout, self._supervisor, kubernetes, self._environment)

    def _kubectl(self) -> Kubectl:
        return self._control_plane().kubectl()

    def _node(self, name: str) -> Node:
        return Node(name, self._layout, self._supervisor, self._environment)

    def _nodes(self) -> list[Node]:
        return [self._node(name) for name in self._settings().node_names]

    def _known(self, name: str) -> Node:
        names = self._settings().node_names
        if name not in names:
            raise ClusterError(f"There is no node {name!r}; the cluster has {', '.join(names)}.")
        return self._node(name)

    def _process_state(self, name: str) -> str:
        pid = self._supervisor.running(name)
        return "stopped" if pid is None else f"running (process {pid})"

    def _mounts(self) -> list[Path]:
        return host.mounts_under(FOLDER, Path("/proc/self/mountinfo").read_text())

    def _require(self) -> None:
        reason = self.missing()
        if reason:
            raise ClusterError(f"The provider bare cannot be used here: {reason}.")

    @contextmanager
    def _changing(self, doing: str) -> Iterator[None]:
        """Hold the lock over a cluster that is up."""
        self._require()
        with self._locked(doing):
            if not self.exists():
                raise ClusterError(UP_FIRST)
            yield

    @contextmanager
    def _locked(self, doing: str) -> Iterator[None]:
        with locked(LOCK, doing):
            yield


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:80]
    except OSError:
        return "ended meanwhile"
