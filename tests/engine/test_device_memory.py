"""Memory in use: what each place holds now, measured, and how it is given back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import ModuleType

import psutil
import pytest
import torch

from layerlight.core.device import CPU, DISK
from layerlight.core.messages import PlacedLayer, PlaceMemory
from layerlight.engine import device_memory, returning
from layerlight.engine.device_memory import ProcessMemory, measure_memory, parse_status, process_memory, reset_peaks
from layerlight.engine.returning import give_back
from tests.engine.device_fakes import GIB, Card, DeviceModule, Metal, install_cards, install_metal

pytestmark = pytest.mark.engine
MIB = 1 << 20


def _by_place(memory: tuple[PlaceMemory, ...]) -> dict[str, PlaceMemory]:
    return {each.place: each for each in memory}


def _placed(name: str, place: str, size: int) -> PlacedLayer:
    return PlacedLayer(name, place, place, size, "float32")


@pytest.mark.simulated
def test_each_device_tells_what_it_holds_and_held(simulated: Callable[..., ModuleType]) -> None:
    simulated([16 * MIB, 8 * MIB])
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="sim:1")
    torch.empty(2 * MIB, dtype=torch.uint8, device="sim:1")
    layers = (_placed("a", "sim:1", 5), _placed("b", "cpu", 7), _placed("c", "sim:1", 11), _placed("d", "disk", 13))
    measured = measure_memory(layers)
    assert [each.place for each in measured] == ["sim:0", "sim:1", CPU, DISK]
    found = _by_place(measured)
    assert found["sim:0"] == PlaceMemory("sim:0", 16 * MIB, 16 * MIB, 0, peak=0, process=0)
    assert found["sim:1"] == PlaceMemory("sim:1", 8 * MIB, 5 * MIB, 16, peak=5 * MIB, process=held.nbytes)
    assert (found[CPU].model, found[DISK].model) == (7, 13)


@pytest.mark.simulated
def test_new_peaks_begin_where_memory_is_now(simulated: Callable[..., ModuleType]) -> None:
    simulated([16 * MIB])
    held = torch.empty(MIB, dtype=torch.uint8, device="sim")
    torch.empty(9 * MIB, dtype=torch.uint8, device="sim")
    torch.zeros(64 * MIB)
    before = _by_place(measure_memory())
    reset_peaks()
    after = _by_place(measure_memory())
    assert (before["sim:0"].peak, after["sim:0"].peak) == (10 * MIB, held.nbytes)
    if sys.platform == "linux":
        assert (before[CPU].peak or 0) >= (before[CPU].process or 0) + 200 * MIB
        assert (after[CPU].peak or 0) < (before[CPU].peak or 0) - 200 * MIB


def test_anonymous_memory_rises_with_tensors_and_falls_again() -> None:
    gc.collect()
    before = process_memory()
    held = torch.zeros(32 * MIB)
    during = process_memory()
    size = held.nbytes
    del held
    after = process_memory()
    assert before.anonymous is not None
    assert during.anonymous is not None
    assert after.anonymous is not None
    assert abs(during.anonymous - before.anonymous - size) < 8 * MIB
    assert abs(after.anonymous - before.anonymous) < 8 * MIB


def test_without_proc_psutil_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(device_memory, "PROCESS_STATUS", device_memory.Path(f"{tmp_path}/none"))
    found = process_memory()
    assert abs((found.resident or 0) - psutil.Process().memory_info().rss) < 16 * MIB
    assert 0 < (found.anonymous or 0) <= (found.resident or 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("VmHWM:\t  300 kB\nVmRSS:\t  200 kB\nRssAnon:\t 100 kB\n", ProcessMemory(200 << 10, 300 << 10, 100 << 10)),
        ("VmRSS: 200 kB", ProcessMemory(200 << 10)),
        ("VmRSS: lots kB\nRssAnon: -3 kB\nVmHWM: 3\n: kB", ProcessMemory()),
        ("", ProcessMemory()),
    ],
)
def test_h14_what_the_status_does_not_tell_is_unknown(text: str, expected: ProcessMemory) -> None:
    assert parse_status(text) == expected


def test_cuda_counts_its_cache_as_held(monkeypatch: pytest.MonkeyPatch) -> None:
    install_cards(monkeypatch, "cuda", DeviceModule([Card()]))
    measured = _by_place(measure_memory((_placed("a", "cuda:0", 5),)))["cuda:0"]
    assert measured == PlaceMemory("cuda:0", 8 * GIB, 6 * GIB, 5, peak=2 * GIB, process=GIB)


def test_d04_metals_driver_is_asked_not_torchs_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """D04: torch's counters miss what the driver keeps, so the driver's figure and the process's own are shown."""
    install_metal(monkeypatch, Metal(limit=4 * GIB, held=3 * GIB))
    found = _by_place(measure_memory())
    assert (found["mps"].process, found["mps"].peak, found["mps"].total) == (3 * GIB, None, 4 * GIB)
    assert (found["mps"].free or 0) <= GIB
    assert (found[CPU].process or 0) > 0


def test_d04_unloading_collects_then_waits_then_empties_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """D04: another order leaves on the device what the collection frees, or what work in flight still holds."""
    metal = install_metal(monkeypatch, Metal())

    def collect() -> int:
        metal.calls.append("collect")
        return 0

    monkeypatch.setattr(returning.gc, "collect", collect)
    give_back(["mps", CPU, DISK])
    assert metal.calls == ["collect", "synchronize", "empty_cache"]
