"""Image builds and archives: arguments, names, and how pip's configuration enters a build."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hack.cluster.testcluster.archives import images_in, parse_index, parse_listing
from hack.cluster.testcluster.base import parse_index_targets
from hack.cluster.testcluster.builders import Build, file_name, parse_arguments
from hack.cluster.testcluster.errors import ClusterError
from hack.cluster.testcluster.pipconfig import Mount, mounts_for, parse_config_list


def test_build_arguments_are_names_with_values() -> None:
    assert parse_arguments(["BASE=localhost/a:1", "EMPTY=", "URL=a=b"]) == {
        "BASE": "localhost/a:1",
        "EMPTY": "",
        "URL": "a=b",
    }


@pytest.mark.parametrize("word", ["BASE", "=value", ""])
def test_other_build_arguments_are_refused(word: str) -> None:
    with pytest.raises(ClusterError) as refused:
        parse_arguments([word])
    assert str(refused.value) == f"--build-arg {word!r} is not of the form NAME=VALUE."


def test_a_build_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"Dockerfile does not exist; give the path of a Dockerfile\.$"):
        Build(file=tmp_path / "Dockerfile", tag="a", context=tmp_path, arguments={})
    (tmp_path / "Dockerfile").touch()
    with pytest.raises(ClusterError, match=r"away does not exist; give the folder that the Dockerfile copies"):
        Build(file=tmp_path / "Dockerfile", tag="a", context=tmp_path / "away", arguments={})


def test_an_image_name_becomes_one_file_name() -> None:
    assert file_name("localhost/a/b:test") == "localhost_a_b_test"


def test_images_of_an_archive_have_names_and_digests() -> None:
    text = """{"manifests": [
        {"digest": "sha256:1", "annotations": {"org.opencontainers.image.ref.name": "localhost/a:1"}},
        {"digest": "sha256:2"}]}"""
    assert parse_index(text) == {"localhost/a:1": "sha256:1"}


def test_images_of_a_node_have_names_and_digests() -> None:
    text = (
        "REF           TYPE                                 DIGEST   SIZE    PLATFORMS   LABELS\n"
        "localhost/a:1 application/vnd.oci.image.manifest   sha256:1 9.0 MiB linux/amd64 io.cri=managed\n"
    )
    assert parse_listing(text) == {"localhost/a:1": "sha256:1"}


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("no archive")
    with pytest.raises(ClusterError, match=r"a\.tar is not an image archive"):
        images_in(tmp_path / "a.tar")


def test_an_archive_without_index_names_no_images(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(Path(__file__), "manifest.json")
    assert images_in(tmp_path / "a.tar") == {}


def test_the_mirror_is_debians_own_and_not_the_security_one() -> None:
    text = (
        "Other|https://packages.example/|main|stable\n"
        "Debian|http://mirror.example/debian-security/|main|bookworm-security\n"
        "Debian|http://mirror.example/debian/|main|bookworm\n"
    )
    assert parse_index_targets(text) == "http://mirror.example/debian/"
    assert parse_index_targets("") is None


def test_pips_environment_beats_its_files() -> None:
    lines = [
        ":env:.cert='/env.crt'",
        ":env:.cache-dir='/cache'",
        "global.cert='/file.crt'",
        "global.timeout='9'",
        "install.cert='/x'",
    ]
    assert parse_config_list("\n".join(lines)) == {"global": {"timeout": "9", "cert": "/env.crt"}, "install": {}}


def test_files_that_pip_needs_are_mounted_under_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").touch()
    certificate, wheels = str(tmp_path / "ca.crt"), str(tmp_path / "wheels")
    sections, mounts = mounts_for({"global": {"cert": certificate, "find-links": wheels, "retries": "9"}})
    assert sections == {
        "global": {"cert": "/run/host-pip/cert", "find-links": "/run/host-pip/find-links", "retries": "9"}
    }
    assert mounts == [
        Mount(tmp_path / "ca.crt", "/run/host-pip/cert"),
        Mount(tmp_path / "wheels", "/run/host-pip/find-links"),
    ]


def test_an_empty_folder_of_wheels_is_left_out(tmp_path: Path) -> None:
    assert mounts_for({"global": {"find-links": str(tmp_path)}}) == ({}, [])
    assert mounts_for({"global": {"find-links": "https://wheels.example/"}}) == (
        {"global": {"find-links": "https://wheels.example/"}},
        [],
    )
