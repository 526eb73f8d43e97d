"""Command lines and configuration files of the cluster's programs; pure functions of settings and paths.

Programs read JSON wherever they read YAML, so JSON is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from . import cgroups
from .network import POD_BRIDGE
from .pki import Authority
from .settings import Addresses, Settings

NODE_GROUP_LABEL = "gradientmail.io/test-node"
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
API_PORT = 6443


@dataclass(frozen=True)
class Layout:
    """Paths below the cluster's folder."""

    root: Path

    @property
    def settings(self) -> Path:
        """The running cluster's `Settings`."""
        return self.root / "settings.json"

    @property
    def host_record(self) -> Path:
        """What `host.prepare` noted."""
        return self.root / "host.json"

    @property
    def configuration(self) -> Path:
        """Configuration files and kubeconfigs."""
        return self.root / "configuration"

    @property
    def records(self) -> Path:
        """One record for each program that was started."""
        return self.root / "processes"

    @property
    def keys(self) -> Path:
        """Certificates and private keys."""
        return self.root / "keys"

    @property
    def pod_addresses(self) -> Path:
        """Which pod has which address."""
        return self.root / "pod-addresses"

    @property
    def network_plugins(self) -> Path:
        """Folder of the one network configuration all nodes use."""
        return self.root / "network"

    def node(self, name: str) -> Path:
        """Everything of one node."""
        return self.root / "nodes" / name

    def covered(self, name: str, folder: str) -> Path:
        """What a node sees in place of a folder of the machine."""
        return self.node(name) / "covered" / folder.strip("/").replace("/", "-")

    def socket(self, name: str) -> Path:
        """Where a node's containerd listens."""
        return self.node(name) / "containerd.sock"

    def kubeconfig(self, name: str) -> Path:
        """Kubeconfig of one identity."""
        return self.configuration / f"{name}.kubeconfig"


def server(addresses: Addresses) -> str:
    """Address of the API server as clients write it."""
    return f"https://{addresses.control_plane}:{API_PORT}"


def etcd(layout: Layout, addresses: Addresses, authority: Authority) -> list[str]:
    """Command line of etcd; only holders of a certificate of this cluster can talk to it."""
    clients = f"https://{addresses.control_plane}:{ETCD_PORT}"
    peers = f"https://{addresses.control_plane}:{ETCD_PEER_PORT}"
    tls = []
    for prefix in ("", "peer-"):
        tls += [
            f"--{prefix}cert-file={authority.certificate('etcd')}",
            f"--{prefix}key-file={authority.key('etcd')}",
            f"--{prefix}trusted-ca-file={authority.certificate('ca')}",
            f"--{prefix}client-cert-auth",
        ]
    return [
        "etcd",
        f"--data-dir={layout.root / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        *tls,
    ]


def api_server(settings: Settings, addresses: Addresses, authority: Authority) -> list[str]:
    """Command line of kube-apiserver: defaults of admission, Node and RBAC authorisation."""
    toleration = settings.eviction_seconds
    return [
        "kube-apiserver",
        f"--etcd-servers=https://{addresses.control_plane}:{ETCD_PORT}",
        f"--etcd-cafile={authority.certificate('ca')}",
        f"--etcd-certfile={authority.certificate('etcd')}",
        f"--etcd-keyfile={authority.key('etcd')}",
        f"--service-cluster-ip-range={addresses.services}",
        f"--bind-address={addresses.control_plane}",
        f"--advertise-address={addresses.control_plane}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={authority.certificate('apiserver')}",
        f"--tls-private-key-file={authority.key('apiserver')}",
        f"--client-ca-file={authority.certificate('ca')}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-account-key-file={authority.service_account_public_key}",
        f"--service-account-signing-key-file={authority.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-client-certificate={authority.certificate('apiserver-kubelet')}",
        f"--kubelet-client-key={authority.key('apiserver-kubelet')}",
        f"--kubelet-certificate-authority={authority.certificate('ca')}",
        # Node names are in no DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--default-not-ready-toleration-seconds={toleration}",
        f"--default-unreachable-toleration-seconds={toleration}",
    ]


def controller_manager(layout: Layout, addresses: Addresses, authority: Authority) -> list[str]:
    """Command line of kube-controller-manager; a silent node is NotReady after 16 s."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        f"--bind-address={addresses.control_plane}",
        "--leader-elect=false",
        f"--flex-volume-plugin-dir={layout.root / 'volume-plugins'}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={authority.service_account_key}",
        f"--root-ca-file={authority.certificate('ca')}",
        "--node-monitor-grace-period=16s",
        "--node-monitor-period=2s",
    ]


def scheduler(layout: Layout, addresses: Addresses) -> list[str]:
    """Command line of kube-scheduler."""
    return [
        "kube-scheduler",
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        f"--bind-address={addresses.control_plane}",
        "--leader-elect=false",
    ]


def proxy(layout: Layout, addresses: Addresses) -> list[str]:
    """Command line of kube-proxy, one for all nodes as they share a network; it leaves kernel settings alone."""
    return [
        "kube-proxy",
        f"--kubeconfig={layout.kubeconfig('kube-proxy')}",
        "--hostname-override=node-1",
        "--proxy-mode=iptables",
        f"--cluster-cidr={addresses.pods}",
        f"--healthz-bind-address={addresses.control_plane}:10256",
        f"--metrics-bind-address={addresses.control_plane}:10249",
        "--iptables-localhost-nodeports=false",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--oom-score-adj=0",
    ]


def containerd_config(layout: Layout, name: str, plugins: Path, pause_image: str) -> str:
    """Configuration of one node's containerd."""
    folder = layout.node(name)
    return f"""\
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{layout.socket(name)}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  netns_mounts_under_state_dir = true
  # Many virtual machines forbid lowering the score, and every sandbox would die of it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{layout.network_plugins}"
"""


def kubelet_config(layout: Layout, name: str, addresses: Addresses, authority: Authority) -> str:
    """Configuration of one node's kubelet; it shares the machine, so nothing is evicted or collected early."""
    address = addresses.node(name)
    folder = layout.node(name)
    endpoint = f"unix://{layout.socket(name)}"
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate("ca"))},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(authority.certificate(name)),
            "tlsPrivateKeyFile": str(authority.key(name)),
            "containerRuntimeEndpoint": endpoint,
            "imageServiceEndpoint": endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.ROOT}/{pods_group(name)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "clusterDNS": [addresses.dns_service],
            "clusterDomain": "cluster.local",
            "podLogsDir": str(folder / "pod-logs"),
            "volumePluginDir": str(folder / "volume-plugins"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
        },
        indent=1,
    )


def kubelet(layout: Layout, name: str, addresses: Addresses) -> list[str]:
    """Command line of one node's kubelet."""
    return [
        "kubelet",
        f"--config={layout.configuration / f'kubelet-{name}.json'}",
        f"--kubeconfig={layout.kubeconfig(name)}",
        f"--hostname-override={name}",
        f"--root-dir={layout.node(name) / 'kubelet'}",
        f"--node-ip={addresses.node(name)}",
        f"--node-labels={NODE_GROUP_LABEL}={name}",
    ]


def pod_network(layout: Layout, addresses: Addresses) -> str:
    """Network configuration of pods: one bridge for all nodes; `network` masquerades them with one rule for all."""
    ranges = [[{"subnet": str(addresses.pods)}]]
    bridge = {
        "type": "bridge",
        "bridge": POD_BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.pod_addresses),
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "gradientmail-pods", "plugins": [bridge]}, indent=1)


def daemons_group(name: str) -> str:
    """Control group of a node's containerd, kubelet and shims, or of the control plane."""
    return f"daemons/{name}"


def pods_group(name: str) -> str:
    """Control group of a node's pods."""
    return f"nodes/{name}"
