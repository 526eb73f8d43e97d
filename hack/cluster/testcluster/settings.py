"""What a cluster is made of: how many nodes, which addresses, how many pretend GPUs."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass

from .errors import ClusterError

KUBERNETES_VERSION = "1.34.2"
HELM_VERSION = "3.19.5"
GPU_RESOURCE = "nvidia.com/gpu"
MAXIMUM_NODES = 50


@dataclass(frozen=True)
class Settings:
    """One cluster's settings; equal settings mean that a running cluster can be kept."""

    nodes: int = 3
    gpus: int = 8
    eviction_seconds: int = 30
    network: str = "10.212.0.0/14"

    def __post_init__(self) -> None:
        """Refuse what could not work, before anything is started."""
        if not 1 <= self.nodes <= MAXIMUM_NODES:
            raise ClusterError(f"--nodes is {self.nodes}; give a number from 1 to {MAXIMUM_NODES}.")
        if self.gpus < 0:
            raise ClusterError(f"--gpus is {self.gpus}; give 0 or more pretend GPUs for each node.")
        if self.eviction_seconds < 0:
            raise ClusterError(f"--eviction-seconds is {self.eviction_seconds}; give 0 or more seconds.")
        Addresses.within(self.network)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes, in order."""
        return tuple(f"node-{number}" for number in range(1, self.nodes + 1))

    def to_json(self) -> str:
        """Text that `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read what `to_json` wrote; raises `ClusterError` for what another version of the tool wrote."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            raise ClusterError(
                "The cluster was made by another version of this tool; run: python3 hack/cluster down"
            ) from None


@dataclass(frozen=True)
class Addresses:
    """How one private range is shared out: a quarter each for nodes, Services and pods."""

    nodes: ipaddress.IPv4Network
    services: ipaddress.IPv4Network
    pods: ipaddress.IPv4Network

    @classmethod
    def within(cls, network: str) -> Addresses:
        """Share out a private IPv4 range of /10 to /18; raises `ClusterError` for any other."""
        try:
            whole = ipaddress.IPv4Network(network)
        except ValueError as error:
            raise ClusterError(
                f"--network {network!r} is not an IPv4 range ({error}); use one like 10.212.0.0/14."
            ) from None
        if not whole.is_private or not 10 <= whole.prefixlen <= 18:
            raise ClusterError(f"--network {network} must be a private IPv4 range of /10 to /18, like 10.212.0.0/14.")
        nodes, services, pods, _ = whole.subnets(prefixlen_diff=2)
        return cls(nodes=nodes, services=services, pods=pods)

    @property
    def control_plane(self) -> str:
        """Address of the API server and of the other control-plane programs."""
        return str(self.nodes[1])

    def node(self, name: str) -> str:
        """Address of the node called ``node-N``."""
        return str(self.nodes[10 + int(name.removeprefix("node-"))])

    @property
    def kubernetes_service(self) -> str:
        """Cluster address of the Service ``kubernetes``."""
        return str(self.services[1])

    @property
    def dns_service(self) -> str:
        """Address that pods' resolvers are given; nothing answers there, as there is no cluster DNS."""
        return str(self.services[53])
