"""What the cluster's programs are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hack.cluster.testcluster import configs
from hack.cluster.testcluster.pki import Authority
from hack.cluster.testcluster.settings import Addresses, Settings

LAYOUT = configs.Layout(Path("/folder"))
ADDRESSES = Addresses.within("10.212.0.0/14")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


def test_pods_are_evicted_after_the_time_asked_for(authority: Authority) -> None:
    words = configs.api_server(Settings(eviction_seconds=7), ADDRESSES, authority)
    assert "--default-not-ready-toleration-seconds=7" in words
    assert "--default-unreachable-toleration-seconds=7" in words
    assert "--service-cluster-ip-range=10.213.0.0/16" in words


def test_nothing_listens_outside_the_private_range(authority: Authority) -> None:
    words = [
        *configs.etcd(LAYOUT, ADDRESSES, authority),
        *configs.api_server(Settings(), ADDRESSES, authority),
        *configs.controller_manager(LAYOUT, ADDRESSES, authority),
        *configs.scheduler(LAYOUT, ADDRESSES),
        *configs.proxy(LAYOUT, ADDRESSES),
    ]
    bindings = [word for word in words if "bind-address" in word or "listen" in word]
    assert len(bindings) == 7
    assert all("10.212.0.1" in word for word in bindings)


def test_each_kubelet_has_an_address_a_runtime_and_a_control_group_of_its_own(authority: Authority) -> None:
    first, second = (
        json.loads(configs.kubelet_config(LAYOUT, name, ADDRESSES, authority)) for name in ("node-1", "node-2")
    )
    assert (first["address"], second["address"]) == ("10.212.0.11", "10.212.0.12")
    assert first["containerRuntimeEndpoint"] == "unix:///folder/nodes/node-1/containerd.sock"
    assert second["cgroupRoot"] == "/gradientmail-cluster/nodes/node-2"


def test_containerd_keeps_everything_in_the_nodes_folder() -> None:
    text = configs.containerd_config(LAYOUT, "node-1", Path("/plugins"), "localhost/pause:1")
    paths = [
        line.split('"')[1]
        for line in text.splitlines()
        if line.strip().startswith(("root", "state", "address", "path"))
    ]
    assert paths == [
        "/folder/nodes/node-1/containerd/root",
        "/folder/nodes/node-1/containerd/state",
        "/folder/nodes/node-1/containerd.sock",
        "/folder/nodes/node-1/containerd/opt",
    ]
    assert 'sandbox_image = "localhost/pause:1"' in text


def test_a_kubeconfig_holds_all_it_needs(authority: Authority) -> None:
    authority.issue("admin", "/O=system:masters/CN=admin")
    written = json.loads(authority.kubeconfig("admin", configs.server(ADDRESSES)))
    assert written["clusters"][0]["cluster"]["server"] == "https://10.212.0.1:6443"
    assert sorted(written["users"][0]["user"]) == ["client-certificate-data", "client-key-data"]


def test_a_certificate_is_made_once(authority: Authority) -> None:
    authority.issue("etcd", "/CN=etcd", ("IP:10.212.0.1",))
    before = authority.certificate("etcd").read_bytes()
    authority.issue("etcd", "/CN=etcd", ("IP:10.212.0.1",))
    assert authority.certificate("etcd").read_bytes() == before
