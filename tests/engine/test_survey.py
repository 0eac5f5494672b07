"""Devices as a survey finds them: real figures or “unknown”, one pool where memory is shared, never fatal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch

from layerlight.core.device import CPU, DISK, Device
from layerlight.core.machines.local_memory import ram
from layerlight.engine import accelerators, dtypes, survey
from layerlight.engine.accelerators import describe, find_accelerators, read_memory
from layerlight.engine.hidden_gpus import GpuFacts
from layerlight.engine.survey import built_for, survey_machine
from tests.engine.device_fakes import GIB, Card, DeviceModule, Metal, install_cards, install_metal

pytestmark = pytest.mark.engine
MIB = 1 << 20
RAM = Device(CPU, CPU, "RAM", 32 * GIB, 10 * GIB)


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's fake devices said is not remembered for the next; no real cards are looked for."""
    monkeypatch.setattr(dtypes, "_known", {})
    monkeypatch.setattr(accelerators, "_said", {})
    monkeypatch.setattr(survey, "gpu_facts", GpuFacts)


def _described(kind: str, index: int = 0) -> Device:
    found = [each for each in find_accelerators()[0] if each.torch_kind == kind][index]
    return describe(found, read_memory(found), RAM)


# -- the machine these tests run on ------------------------------------------------------------------------------------


def test_this_machine_has_ram_and_disk_last(tmp_path: Path) -> None:
    machine = survey_machine(tmp_path)
    assert [device.id for device in machine.devices[-2:]] == [CPU, DISK]
    memory = machine.device(CPU)
    assert 0 < (memory.free or 0) <= (memory.total or 0) <= psutil.virtual_memory().total
    assert "float32" in memory.dtypes
    assert machine.torch_build == torch.__version__


def test_without_a_folder_the_offload_folders_disk_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAYERLIGHT_HOME", str(tmp_path / "not" / "there" / "yet"))
    assert (survey_machine().device(DISK).total or 0) > 0
    assert not (tmp_path / "not").exists()


# -- simulated devices -------------------------------------------------------------------------------------------------


@pytest.mark.simulated
def test_registered_backends_are_found_without_being_known(
    simulated: Callable[..., ModuleType], tmp_path: Path
) -> None:
    simulated([64 * MIB, 48 * MIB])
    held = torch.empty(8 * MIB, dtype=torch.uint8, device="sim:1")
    found = survey_machine(tmp_path).accelerators
    assert [(each.id, each.kind, each.name) for each in found] == [
        ("sim:0", "sim", "Simulated accelerator 0"),
        ("sim:1", "sim", "Simulated accelerator 1"),
    ]
    assert [(each.total, each.free) for each in found] == [
        (64 * MIB, 64 * MIB),
        (48 * MIB, 48 * MIB - held.nbytes),
    ]
    assert all(each.dtypes == ("bfloat16", "float16", "float32") for each in found)
    assert all(each.shares_memory_with is None for each in found)


@pytest.mark.simulated
@pytest.mark.parametrize("unified", [False, True])
def test_unified_memory_is_one_pool(simulated: Callable[..., ModuleType], tmp_path: Path, unified: bool) -> None:
    simulated([2**50], unified=unified)
    machine = survey_machine(tmp_path)
    device, memory = machine.accelerators[0], machine.device(CPU)
    assert device.shares_memory_with == (CPU if unified else None)
    assert (device.total, device.free) == ((memory.total, memory.free) if unified else (2**50, 2**50))


@pytest.mark.simulated
def test_a_full_device_is_not_taken_for_one_without_dtypes(
    simulated: Callable[..., ModuleType], tmp_path: Path
) -> None:
    sim = simulated([MIB])
    held = torch.empty(MIB - 64, dtype=torch.uint8, device="sim")
    machine = survey_machine(tmp_path)
    assert machine.accelerators[0].dtypes == ()
    assert machine.warnings == ()
    del held
    assert survey_machine(tmp_path).accelerators[0].dtypes == ("bfloat16", "float16", "float32")
    assert sim.memory_allocated(0) == 0


# -- CUDA, ROCm, XPU ---------------------------------------------------------------------------------------------------


def test_a18_number_name_and_memory_come_from_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A18: torch numbers the fastest card first, nvidia-smi by bus; only torch's own order may appear."""
    cards = [Card("RTX 4090", 24 * GIB, 23 * GIB), Card("GTX 1060", 6 * GIB, 5 * GIB)]
    install_cards(monkeypatch, "cuda", DeviceModule(cards))
    for index, card in enumerate(cards):
        device = _described("cuda", index)
        assert (device.id, device.name, device.total, device.free) == (
            f"cuda:{index}",
            card.name,
            card.total,
            card.free,
        )


@pytest.mark.parametrize(
    ("torch_kind", "hip", "kind"), [("cuda", None, "cuda"), ("cuda", "7.2", "rocm"), ("xpu", None, "xpu")]
)
def test_kinds_by_build(monkeypatch: pytest.MonkeyPatch, torch_kind: str, hip: str | None, kind: str) -> None:
    install_cards(monkeypatch, torch_kind, DeviceModule([Card()]))
    monkeypatch.setattr(torch.version, "hip", hip)
    device = _described(torch_kind)
    assert (device.id, device.kind) == (f"{torch_kind}:0", kind)


def test_an_integrated_card_shares_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    install_cards(monkeypatch, "cuda", DeviceModule([Card("GB10", 64 * GIB, 60 * GIB, integrated=1)]))
    device = _described("cuda")
    assert (device.shares_memory_with, device.total, device.free) == (CPU, RAM.total, RAM.free)


NOT_A_SIZE = [None, "N/A", -1, 2**64 - 1, math.nan, RuntimeError("NVML: unknown error")]


@pytest.mark.parametrize("value", NOT_A_SIZE, ids=str)
@pytest.mark.parametrize("integrated", [0, 1])
@pytest.mark.parametrize("which", ["free", "total"])
def test_h14_what_cant_be_true_is_unknown(
    monkeypatch: pytest.MonkeyPatch, which: str, integrated: int, value: Any
) -> None:
    """H14: never a wrong number in place of one that can't be read."""
    card = Card(integrated=integrated)
    setattr(card, which, value)
    install_cards(monkeypatch, "cuda", DeviceModule([card]))
    device = _described("cuda")
    assert getattr(device, which) is None
    assert device.name == "Card" or "can't be asked" in device.note


@pytest.mark.parametrize("free", [9 * GIB, 2**40])
def test_h14_free_is_never_more_than_total(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    install_cards(monkeypatch, "cuda", DeviceModule([Card(total=8 * GIB, free=free)]))
    assert _described("cuda").free == 8 * GIB


# -- Apple -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "held", "ram_free", "total", "free"),
    [
        (20 * GIB, 3 * GIB, 30 * GIB, 20 * GIB, 17 * GIB),
        (20 * GIB, 3 * GIB, 10 * GIB, 20 * GIB, 10 * GIB),
        (20 * GIB, 21 * GIB, 10 * GIB, 20 * GIB, 0),
        (64 * GIB, 0, 10 * GIB, 32 * GIB, 10 * GIB),
        (2**64 - 1, 0, 10 * GIB, None, None),
        (20 * GIB, 2**64 - 1, 10 * GIB, 20 * GIB, None),
        (RuntimeError("Metal is busy"), 0, 10 * GIB, None, None),
        (20 * GIB, RuntimeError("Metal is busy"), 10 * GIB, 20 * GIB, None),
        (20 * GIB, 3 * GIB, None, 20 * GIB, None),
    ],
)
def test_metal_is_limited_by_its_own_limit_and_by_what_the_system_has(
    monkeypatch: pytest.MonkeyPatch, limit: Any, held: Any, ram_free: int | None, total: int | None, free: int | None
) -> None:
    install_metal(monkeypatch, Metal(limit, held))
    mps = next(each for each in find_accelerators()[0] if each.kind == "mps")
    device = describe(mps, read_memory(mps), Device(CPU, CPU, "RAM", 32 * GIB, ram_free))
    assert device == Device("mps", "mps", "Apple M3 Pro", total, free, shares_memory_with=CPU)


# -- what must never end the survey ------------------------------------------------------------------------------------

FAILURES = [
    RuntimeError("No CUDA GPUs are available\n  frame #0: somewhere"),
    AssertionError("Torch not compiled with CUDA enabled"),
    OSError(5, "Input/output error"),
    AttributeError("module has no attribute"),
    ImportError("libcuda.so.1: cannot open shared object file"),
    NotImplementedError("not on this backend"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_h15_a_driver_that_fails_leaves_the_cpu_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Exception
) -> None:
    install_cards(monkeypatch, "cuda", DeviceModule([], available=failure))
    machine = survey_machine(tmp_path)
    assert [device.id for device in machine.devices][-2:] == [CPU, DISK]
    reason = str(failure).splitlines()[0]
    assert machine.warnings == (f"cuda devices can't be used: {reason}",)


def test_h15_a_driver_that_torch_only_warns_of_is_told_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch warns once a process that a driver is too old, then says that there is no card."""
    import warnings

    class Old(DeviceModule):
        asked = 0

        def is_available(self) -> bool:
            self.asked += 1
            if self.asked == 1:
                warnings.warn(
                    "CUDA initialization: The NVIDIA driver is too old (Triggered internally at x.cpp:1)", stacklevel=2
                )
            return False

    install_cards(monkeypatch, "cuda", Old([]))
    expected = ("cuda devices can't be used: CUDA initialization: The NVIDIA driver is too old",)
    assert find_accelerators() == ((), expected)
    assert find_accelerators() == ((), expected)


def test_h15_one_card_that_cant_be_asked_does_not_hide_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = RuntimeError("CUDA error: unspecified launch failure")
    install_cards(monkeypatch, "cuda", DeviceModule([Card(broken, broken, broken), Card("Good")]))
    first, second = _described("cuda", 0), _described("cuda", 1)
    assert (first.name, first.total, first.free) == ("cuda device", None, None)
    assert "unspecified launch failure" in first.note
    assert (second.name, second.free) == ("Good", 6 * GIB)


def test_a_device_that_computes_nothing_right_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fake card has no arithmetic behind it, as a card whose driver fails at the first kernel."""
    install_cards(monkeypatch, "cuda", DeviceModule([Card("Bad card")]))
    machine = survey_machine(tmp_path)
    assert machine.accelerators[0].dtypes == ()
    assert machine.warnings == ("Bad card (cuda:0) failed every small test of its arithmetic: place nothing there.",)


@pytest.mark.parametrize(
    ("version", "expected"),
    [({"cuda": "13.0"}, "cuda"), ({"hip": "7.2"}, "rocm"), ({"xpu": "2026"}, "xpu"), ({}, "cpu")],
)
def test_what_torch_was_built_for(monkeypatch: pytest.MonkeyPatch, version: dict[str, str], expected: str) -> None:
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, version.get(name), raising=False)
    assert built_for() == expected


def test_a_card_that_this_torch_cant_see_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(survey, "gpu_facts", lambda: GpuFacts(nvidia=True, nvidia_name="NVIDIA GeForce RTX 3060"))
    monkeypatch.setattr(survey, "built_for", lambda: "cpu")
    (warning,) = survey_machine(tmp_path).warnings
    assert "NVIDIA GeForce RTX 3060" in warning
    assert warning.endswith("python3 packaging/run.py --torch cuda")


def test_ram_of_a_survey_is_that_of_core(tmp_path: Path) -> None:
    assert survey_machine(tmp_path).device(CPU).total == ram().total
