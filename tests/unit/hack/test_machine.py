"""Reading the machine: mounts, control groups, Go, nodes; and the choice between providers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hack.cluster.testcluster.binaries import kubernetes_link_flags, parse_go_version
from hack.cluster.testcluster.cache import cache_root, content_key
from hack.cluster.testcluster.cgroups import Hierarchy, parse_hierarchies
from hack.cluster.testcluster.errors import ClusterError
from hack.cluster.testcluster.host import mounts_under
from hack.cluster.testcluster.kubectl import Node, parse_nodes
from hack.cluster.testcluster.providers import name_for
from hack.cluster.testcluster.providers.kind import cluster_config, container_of

TOOL = Path(__file__).parents[3] / "hack" / "cluster"
MOUNTINFO = """\
20 1 8:1 / / rw - ext4 /dev/vda rw
30 20 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
31 20 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
40 20 0:40 / /var/lib/cluster/a rw - tmpfs tmpfs rw
41 40 0:41 / /var/lib/cluster/a/b\\040c rw shared:1 - tmpfs tmpfs rw
42 20 0:42 / /var/lib/cluster-of-another rw - tmpfs tmpfs rw
"""


def test_version_2_is_left_out_where_version_1_is_in_use() -> None:
    assert parse_hierarchies(MOUNTINFO) == (Hierarchy(Path("/sys/fs/cgroup/pids"), 1),)
    alone = "31 20 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert parse_hierarchies(alone) == (Hierarchy(Path("/sys/fs/cgroup"), 2),)
    assert parse_hierarchies("20 1 8:1 / / rw - ext4 /dev/vda rw\n") == ()


def test_mounts_under_a_folder_come_innermost_first() -> None:
    assert mounts_under(Path("/var/lib/cluster"), MOUNTINFO) == [
        Path("/var/lib/cluster/a/b c"),
        Path("/var/lib/cluster/a"),
    ]


@pytest.mark.parametrize(
    ("text", "version"), [("go version go1.24.3 linux/amd64", (1, 24)), ("go version go1.19 linux/arm64", (1, 19))]
)
def test_the_version_of_go_is_found(text: str, version: tuple[int, int]) -> None:
    assert parse_go_version(text) == version


def test_kubernetes_says_its_version() -> None:
    flags = kubernetes_link_flags("1.34.2")
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.2" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=34" in flags


def test_the_cache_key_changes_with_every_source(tmp_path: Path) -> None:
    file = tmp_path / "go.mod"
    file.write_text("one")
    key = content_key([file], "flags")
    assert content_key([file], "flags") == key
    assert content_key([file], "other flags") != key
    file.write_text("two")
    assert content_key([file], "flags") != key


def test_the_cache_follows_the_users_setting() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/gradientmail/cluster")
    assert cache_root({}) == Path.home() / ".cache/gradientmail/cluster"


def test_nodes_are_read_with_their_state() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}}
    silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    items = [{"metadata": {"name": "node-1"}, "status": ready}, {"metadata": {"name": "node-2"}, "status": silent}]
    nodes = parse_nodes(json.dumps({"items": items}))
    assert nodes == (Node("node-1", ready=True, gpus=8), Node("node-2", ready=False, gpus=0))
    assert nodes[0].describe() == "node-1: Ready, 8 GPUs"


@pytest.mark.parametrize(
    ("missing", "bare_is_up", "name"),
    [
        ({"existing": "", "kind": "", "bare": ""}, False, "existing"),
        ({"existing": "unset", "kind": "", "bare": ""}, False, "kind"),
        ({"existing": "unset", "kind": "no engine", "bare": ""}, False, "bare"),
        ({"existing": "unset", "kind": "", "bare": ""}, True, "bare"),
        ({"existing": "", "kind": "", "bare": ""}, True, "existing"),
    ],
)
def test_the_first_provider_that_can_work_is_chosen(missing: dict[str, str], bare_is_up: bool, name: str) -> None:
    assert name_for(missing, bare_is_up=bare_is_up) == name


def test_where_none_can_work_all_that_is_missing_is_named() -> None:
    with pytest.raises(ClusterError) as refused:
        name_for({"existing": "unset", "kind": "no engine", "bare": "it needs root"}, bare_is_up=False)
    assert str(refused.value) == (
        "No way to get a Kubernetes cluster here. existing: unset; kind: no engine; bare: it needs root."
    )


def test_nodes_of_kind_are_its_workers() -> None:
    assert container_of("node-1") == "gradientmail-test-worker"
    assert container_of("node-3") == "gradientmail-test-worker3"
    assert container_of("gradientmail-test-worker2") == "gradientmail-test-worker2"
    assert cluster_config(2).splitlines() == [
        "kind: Cluster",
        "apiVersion: kind.x-k8s.io/v1alpha4",
        "nodes:",
        "- role: control-plane",
        "- role: worker",
        "- role: worker",
    ]


@pytest.mark.parametrize("arguments", [["--provider", "existing", "status"], ["status", "--provider=existing"]])
def test_a_users_mistake_is_one_sentence_and_no_traceback(arguments: list[str], tmp_path: Path) -> None:
    away = tmp_path / "kubeconfig"
    environment = {"GRADIENTMAIL_TEST_KUBECONFIG": str(away), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, TOOL, *arguments], capture_output=True, text=True, env=environment, timeout=30, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr == f"error: GRADIENTMAIL_TEST_KUBECONFIG is '{away}', which is no file; set it to a kubeconfig.\n"
    )
