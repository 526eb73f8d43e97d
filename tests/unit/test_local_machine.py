from pathlib import Path

import pytest

from gradientmail.local.machine import visible_gpus


@pytest.mark.parametrize(("chosen", "gpus"), [("2,5", ["2", "5"]), ("", []), ("GPU-1a", ["GPU-1a"])])
def test_gpus_the_user_has_chosen_are_the_ones_used(chosen: str, gpus: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": chosen}) == gpus


def test_gpus_are_found_in_dev_where_nvidia_smi_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "2", "10"]


def test_nvidia_smi_lists_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 0\necho 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert visible_gpus({}, tmp_path) == ["0", "1"]


def test_a_broken_nvidia_smi_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert visible_gpus({}, tmp_path) == []
