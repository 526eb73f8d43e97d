"""The bare cluster's network on this machine: two bridges of its own, a few packet-filter rules, nothing else.

Assumes the iproute2 and iptables programs. All nodes share the machine's network namespace; each has an address on the
nodes' bridge. Rules of the tool carry its name as a comment, those of kube-proxy live in chains called ``KUBE-…``.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .errors import ClusterError
from .settings import Addresses
from .shell import run, succeeds

NODE_BRIDGE = "gmnodes0"
POD_BRIDGE = "gmpods0"
COMMENT = "gradientmail-cluster"
PROXY_CHAINS = "KUBE-"
FILTERS = ("iptables", "ip6tables")


@dataclass(frozen=True)
class Use:
    """A range of addresses in use on this machine and the link that uses it."""

    link: str
    network: ipaddress.IPv4Network


def up(addresses: Addresses, node_names: Iterable[str]) -> None:
    """Create the nodes' bridge with all addresses, and let pods reach each other and the outside."""
    if not succeeds(["ip", "link", "show", NODE_BRIDGE]):
        run(["ip", "link", "add", NODE_BRIDGE, "type", "bridge"])
    run(["ip", "link", "set", NODE_BRIDGE, "up"])
    for address in (addresses.control_plane, *map(addresses.node, node_names)):
        run(["ip", "address", "replace", f"{address}/32", "dev", NODE_BRIDGE])
    for table, rule in _rules(addresses):
        if not succeeds(["iptables", "-w", "-t", table, "-C", *rule]):
            run(["iptables", "-w", "-t", table, "-A", *rule])


def down(*, proxy_chains: bool) -> None:
    """Remove bridges and rules; kube-proxy's chains too when they are known to be this tool's."""
    for link in (NODE_BRIDGE, POD_BRIDGE):
        if succeeds(["ip", "link", "show", link]):
            run(["ip", "link", "delete", link])
    for program in filter(shutil.which, FILTERS):
        removal = removal_of(run([f"{program}-save"]), proxy_chains=proxy_chains)
        if removal:
            run([f"{program}-restore", "--noflush"], stdin=removal)


def leftovers() -> list[str]:
    """Links, rules and chains that exist, as sentences."""
    found = [f"network link {link}" for link in (NODE_BRIDGE, POD_BRIDGE) if succeeds(["ip", "link", "show", link])]
    for program in filter(shutil.which, FILTERS):
        removal = removal_of(run([f"{program}-save"]), proxy_chains=True)
        found += [f"{program}: {line}" for line in removal.splitlines() if line.startswith(("-D", "-X"))]
    return found


def has_proxy_chains() -> bool:
    """Whether chains of a kube-proxy exist, this tool's or another cluster's."""
    saved = [run([f"{program}-save"]) for program in filter(shutil.which, FILTERS)]
    return any(line.startswith(f":{PROXY_CHAINS}") for text in saved for line in text.splitlines())


def check_free(addresses: Addresses) -> None:
    """Raise `ClusterError` if a range the cluster needs overlaps one this machine uses."""
    uses = [*uses_of_addresses(run(["ip", "-json", "address"])), *uses_of_routes(run(["ip", "-json", "route"]))]
    for needed in (addresses.nodes, addresses.services, addresses.pods):
        for use in uses:
            if needed.overlaps(use.network):
                raise ClusterError(
                    f"The cluster needs the addresses {needed}, but {use.link} uses {use.network}; "
                    "choose another private range with --network, like 10.216.0.0/14."
                )


def uses_of_addresses(text: str) -> Iterator[Use]:
    """IPv4 ranges in the output of ``ip -json address``."""
    for link in json.loads(text):
        for address in link.get("addr_info", ()):
            if address.get("family") == "inet":
                range_text = f"{address['local']}/{address['prefixlen']}"
                yield Use(link["ifname"], ipaddress.IPv4Network(range_text, strict=False))


def uses_of_routes(text: str) -> Iterator[Use]:
    """IPv4 ranges with a route of their own in the output of ``ip -json route``."""
    for route in json.loads(text):
        if route.get("dst", "default") != "default":
            yield Use(route.get("dev", "a route"), ipaddress.IPv4Network(route["dst"]))


def removal_of(saved: str, *, proxy_chains: bool) -> str:
    """What ``iptables-restore --noflush`` must read to take the cluster's rules out of a saved table set."""
    parts = []
    for table, lines in _tables(saved):
        chains = _proxy_chains(lines) if proxy_chains else []
        rules = [f"-D {line[3:]}" for line in lines if _is_rule_of_cluster(line, chains)]
        if chains or rules:
            flushes = [f":{chain} - [0:0]" for chain in chains]
            deletions = [f"-X {chain}" for chain in chains]
            parts += [f"*{table}", *flushes, *rules, *deletions, "COMMIT"]
    return "".join(f"{part}\n" for part in parts)


def _proxy_chains(lines: list[str]) -> list[str]:
    return [line[1:].split(" ")[0] for line in lines if line.startswith(f":{PROXY_CHAINS}")]


def _is_rule_of_cluster(line: str, chains: list[str]) -> bool:
    """Whether a rule in a chain that stays belongs to the cluster."""
    words = line.split(" ")
    if words[0] != "-A" or words[1] in chains:
        return False
    return COMMENT in words or any(word in chains for word in words[2:])


def _tables(saved: str) -> Iterator[tuple[str, list[str]]]:
    name = ""
    lines: list[str] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            name, lines = line[1:], []
        elif line == "COMMIT":
            yield name, lines
        else:
            lines.append(line)


def _rules(addresses: Addresses) -> list[tuple[str, list[str]]]:
    pods, resolver = str(addresses.pods), f"{addresses.dns_service}/32"
    mark = ["-m", "comment", "--comment", COMMENT]
    return [
        # There is no cluster DNS: a refusal fails look-ups at once, silence would after many seconds.
        ("filter", ["FORWARD", "-d", resolver, *mark, "-j", "REJECT"]),
        ("filter", ["FORWARD", "-s", pods, *mark, "-j", "ACCEPT"]),
        ("filter", ["FORWARD", "-d", pods, *mark, "-j", "ACCEPT"]),
        ("nat", ["POSTROUTING", "-s", pods, "!", "-d", pods, *mark, "-j", "MASQUERADE"]),
    ]
