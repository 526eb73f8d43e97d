"""Settings of the test cluster: what is accepted, and the sentence for what is not."""

from __future__ import annotations

import pytest
from hack.cluster.testcluster.errors import ClusterError
from hack.cluster.testcluster.settings import Addresses, Settings


def test_addresses_share_out_the_default_range() -> None:
    addresses = Addresses.within("10.212.0.0/14")
    assert str(addresses.nodes) == "10.212.0.0/16"
    assert str(addresses.services) == "10.213.0.0/16"
    assert str(addresses.pods) == "10.214.0.0/16"
    assert addresses.control_plane == "10.212.0.1"
    assert addresses.node("node-3") == "10.212.0.13"
    assert addresses.kubernetes_service == "10.213.0.1"
    assert addresses.dns_service == "10.213.0.53"


@pytest.mark.parametrize(
    "network", ["10.212.0.0/9", "10.212.0.0/19", "8.8.0.0/14", "10.212.0.1/14", "here", "fd00::/14"]
)
def test_other_ranges_are_refused_with_one_that_works(network: str) -> None:
    with pytest.raises(ClusterError, match=r"like 10\.212\.0\.0/14"):
        Addresses.within(network)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", 0, "--nodes is 0; give a number from 1 to 50."),
        ("nodes", 51, "--nodes is 51; give a number from 1 to 50."),
        ("gpus", -1, "--gpus is -1; give 0 or more pretend GPUs for each node."),
        ("eviction_seconds", -5, "--eviction-seconds is -5; give 0 or more seconds."),
    ],
)
def test_settings_that_cannot_work_are_refused(field: str, value: int, sentence: str) -> None:
    with pytest.raises(ClusterError) as refused:
        Settings(**{field: value})  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_settings_are_read_back_as_written() -> None:
    settings = Settings(nodes=2, gpus=4, eviction_seconds=5, network="10.32.0.0/12")
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.node_names == ("node-1", "node-2")


@pytest.mark.parametrize("text", ['{"nodes": 2, "colour": "red"}', "", "[1]"])
def test_settings_of_another_version_say_to_take_the_cluster_down(text: str) -> None:
    with pytest.raises(ClusterError, match=r"another version of this tool; run: python3 hack/cluster down$"):
        Settings.from_json(text)
