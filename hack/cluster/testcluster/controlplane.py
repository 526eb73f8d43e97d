"""The bare cluster's control plane: etcd, API server, controllers, scheduler and the one kube-proxy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from . import cgroups, configs
from .kubectl import Kubectl
from .pki import Authority, write_private
from .processes import Supervisor
from .settings import Addresses, Settings
from .shell import wait_until

ETCD = "etcd"
API_SERVER = "kube-apiserver"
GROUP = "control-plane"
READY_SECONDS = 120.0
ADMINISTRATOR = "admin"
IDENTITIES: Mapping[str, str] = {
    ADMINISTRATOR: "/O=system:masters/CN=admin",
    "apiserver-kubelet": "/O=system:masters/CN=apiserver-kubelet",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
}
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


class ControlPlane:
    """The control plane's programs; every method blocks until it is done."""

    def __init__(
        self, layout: configs.Layout, supervisor: Supervisor, kubernetes: Path, environment: Mapping[str, str]
    ) -> None:
        self._layout = layout
        self._supervisor = supervisor
        self._kubernetes = kubernetes
        self._environment = environment

    def start(self, settings: Settings, authority: Authority) -> None:
        """Start what does not run, and wait until the API server is ready."""
        addresses = Addresses.within(settings.network)
        self._issue(addresses, authority)
        self._start(ETCD, configs.etcd(self._layout, addresses, authority))
        self.start_apiserver(settings, authority)
        layout = self._layout
        self._start("kube-controller-manager", configs.controller_manager(layout, addresses, authority))
        self._start("kube-scheduler", configs.scheduler(layout, addresses))
        self._start("kube-proxy", configs.proxy(layout, addresses))

    def start_apiserver(self, settings: Settings, authority: Authority) -> None:
        """Start the API server unless it runs, and wait until it is ready."""
        addresses = Addresses.within(settings.network)
        self._start(API_SERVER, configs.api_server(settings, addresses, authority))
        wait_until(self._ready, "the API server to be ready", timeout_seconds=READY_SECONDS, hint=self._log_hint())

    def stop_apiserver(self) -> None:
        """Stop the API server and wait until its process is gone."""
        self._supervisor.stop(API_SERVER)

    def kubectl(self) -> Kubectl:
        """kubectl as administrator."""
        return Kubectl(str(self._kubernetes / "kubectl"), self._layout.kubeconfig(ADMINISTRATOR))

    def _start(self, name: str, command: list[str]) -> None:
        program = self._kubernetes / command[0]
        words = [str(program) if program.exists() else command[0], *command[1:]]
        joins = cgroups.create(configs.daemons_group(GROUP))
        self._supervisor.start(name, words, joins=joins, environment=self._environment)

    def _ready(self) -> bool:
        for name in (ETCD, API_SERVER):
            self._supervisor.check(name)
        return self.kubectl().answers()

    def _log_hint(self) -> str:
        return f"See {self._supervisor.log(API_SERVER)}."

    def _issue(self, addresses: Addresses, authority: Authority) -> None:
        own = f"IP:{addresses.control_plane}"
        authority.issue("etcd", "/CN=etcd", (own,))
        names = (own, f"IP:{addresses.kubernetes_service}", "IP:127.0.0.1", *(f"DNS:{name}" for name in SERVICE_NAMES))
        authority.issue("apiserver", "/CN=kube-apiserver", names)
        for name, subject in IDENTITIES.items():
            authority.issue(name, subject)
            write_private(self._layout.kubeconfig(name), authority.kubeconfig(name, configs.server(addresses)))
