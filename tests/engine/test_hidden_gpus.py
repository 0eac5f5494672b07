"""Cards that torch can't see: told with the command that mends it, whatever the driver's own tools do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from layerlight.engine import hidden_gpus
from layerlight.engine.hidden_gpus import GpuFacts, gpu_facts, hidden_gpu_warning

CPU_BUILD = "2.13.0+cpu"
CUDA = "python3 packaging/run.py --torch cuda"
ROCM = "python3 packaging/run.py --torch rocm"
NVIDIA = GpuFacts(nvidia=True, nvidia_name="NVIDIA GeForce RTX 3060")


@pytest.mark.parametrize(
    ("facts", "build", "seen", "words"),
    [
        (GpuFacts(), "cpu", set(), None),
        (NVIDIA, "cpu", set(), ("NVIDIA GeForce RTX 3060", CPU_BUILD, CUDA)),
        (GpuFacts(nvidia=True), "cpu", set(), ("An NVIDIA card", CUDA)),
        (NVIDIA, "rocm", set(), (CUDA,)),
        (NVIDIA, "xpu", {"xpu"}, (CUDA,)),
        (NVIDIA, "cuda", {"cuda"}, None),
        (NVIDIA, "cuda", set(), ("driver may be missing or too old", "on the CPU")),
        (GpuFacts(nvidia=True, nvidia_problem="nvidia-smi ended with code 9"), "cuda", set(), ("ended with code 9",)),
        (
            GpuFacts(nvidia=True, nvidia_problem="nvidia-smi ended with code 9"),
            "cpu",
            set(),
            (CUDA, "ended with code 9"),
        ),
        (GpuFacts(amd=True), "cpu", set(), ("An AMD card", ROCM)),
        (GpuFacts(amd=True), "rocm", set(), None),
        (GpuFacts(amd=True), "rocm", {"rocm"}, None),
        (GpuFacts(amd=True), "cuda", {"cuda"}, None),
    ],
)
def test_the_warning_for_each_kind_of_machine(
    facts: GpuFacts, build: str, seen: set[str], words: tuple[str, ...] | None
) -> None:
    warning = hidden_gpu_warning(facts, CPU_BUILD, build, frozenset(seen))
    if words is None:
        assert warning == ""
    else:
        assert [word for word in words if word not in warning] == []


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Linux machine without any card: its PCI folder, and a PATH with nothing on it."""
    monkeypatch.setattr(hidden_gpus, "DISPLAY_ADAPTERS", tmp_path / "pci")
    monkeypatch.setattr(hidden_gpus, "NVIDIA_SIGNS", (tmp_path / "nvidia",))
    monkeypatch.setattr(hidden_gpus, "AMD_SIGNS", (tmp_path / "kfd",))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "pci").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path


def _card(linux: Path, vendor: str, kind: str = "0x030000") -> None:
    folder = linux / "pci" / f"0000:01:00.{len(list((linux / 'pci').iterdir()))}"
    folder.mkdir()
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def _nvidia_smi(linux: Path, script: str) -> None:
    program = linux / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("vendor", "kind", "kfd", "expected"),
    [
        ("0x10de", "0x030000", False, GpuFacts(nvidia=True)),
        ("0x10de", "0x030200", False, GpuFacts(nvidia=True)),
        ("0x10de", "0x020000", False, GpuFacts()),
        ("0x1002", "0x030000", False, GpuFacts()),
        ("0x1002", "0x120000", True, GpuFacts(amd=True)),
        ("0x8086", "0x030000", False, GpuFacts()),
    ],
    ids=["graphics", "data centre", "network card", "no compute driver", "accelerator", "intel"],
)
def test_cards_are_read_from_the_bus(linux: Path, vendor: str, kind: str, kfd: bool, expected: GpuFacts) -> None:
    _card(linux, vendor, kind)
    if kfd:
        (linux / "kfd").touch()
    assert gpu_facts() == expected


def test_no_card_no_tool_no_folder_is_no_failure(linux: Path) -> None:
    (linux / "pci").rmdir()
    assert gpu_facts() == GpuFacts()


needs_sh = pytest.mark.skipif(os.name != "posix", reason="the stand-in for nvidia-smi is a shell script")


@needs_sh
@pytest.mark.parametrize(
    ("script", "name", "problem"),
    [
        ("echo 'NVIDIA GeForce RTX 3060'; echo 'NVIDIA T4'", "NVIDIA GeForce RTX 3060", ""),
        ("echo 'No devices were found'; exit 9", "", "nvidia-smi ended with code 9"),
        ("kill -11 $$", "", "nvidia-smi ended with code -11"),
        ("printf '\\377\\376\\001\\002'", "", "nvidia-smi's answer can't be read"),
        ("printf '%0500d' 7", "", "nvidia-smi's answer can't be read"),
        ("true", "", "nvidia-smi's answer can't be read"),
    ],
)
def test_h15_whatever_nvidia_smi_answers(linux: Path, script: str, name: str, problem: str) -> None:
    """H15: error codes, crashes and rubbish become words."""
    _card(linux, "0x10de")
    _nvidia_smi(linux, script)
    assert gpu_facts() == GpuFacts(nvidia=True, nvidia_name=name, nvidia_problem=problem)


@needs_sh
def test_h15_nvidia_smi_that_hangs_is_given_up(linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_gpus, "PROBE_SECONDS", 0.2)
    monkeypatch.setenv("PATH", f"{linux / 'bin'}{os.pathsep}{os.defpath}")
    _card(linux, "0x10de")
    _nvidia_smi(linux, "exec sleep 30")
    started = time.monotonic()
    assert gpu_facts().nvidia_problem == "nvidia-smi gave no answer within 0.2 seconds"
    assert time.monotonic() - started < 10


@needs_sh
def test_h15_nvidia_smi_that_cant_be_started(linux: Path) -> None:
    program = linux / "bin" / "nvidia-smi"
    program.write_bytes(b"\x7fELF broken")
    program.chmod(0o755)
    assert "nvidia-smi can't be started" in gpu_facts().nvidia_problem
