"""Calibration measures what there is, leaves out what there is not, stops when asked and cleans up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from layerlight.core.device import Machine
from layerlight.core.errors import Stopped
from layerlight.core.job import Job
from layerlight.core.messages import CalibrateRequest, CalibrationProgressed, Event, MachineCalibrated
from layerlight.core.pacing.rate_names import is_rate_name
from layerlight.engine import disk_probes
from layerlight.engine.calibration import Sizes, calibrate, last_level_cache
from layerlight.engine.decode_stack import StackSize
from layerlight.engine.engine import TorchEngine
from layerlight.engine.survey import survey_machine

TINY = Sizes(
    small=StackSize(3, 64, 128, 4, 2),
    large=StackSize(2, 512, 1024),
    least=1,
    most=1,
    small_half_on_disk=2,
    large_on_disk=2,
    matrix=64,
    device=2**20,
    copy=2**18,
    cache=2**12,
    rounds=2,
)
ENOUGH = 600.0
"""Seconds that no measurement of this size takes: rounds end it, whatever the machine is doing."""


def measure(folder: Path, machine: Machine | None = None, sizes: Sizes = TINY) -> tuple[MachineCalibrated, list[Event]]:
    told: list[Event] = []
    found = calibrate(CalibrateRequest(str(folder), ENOUGH), Job(told.append), machine, sizes)
    return found, told


def test_the_cpu_and_the_disk_are_measured(tmp_path: Path) -> None:
    found, told = measure(tmp_path)
    rates, machine = dict(found.machine.bandwidths), survey_machine(tmp_path)
    assert {f"matrix:cpu:{dtype}" for dtype in machine.device("cpu").dtypes} <= set(rates)
    assert all(is_rate_name(name) and rate > 0 for name, rate in rates.items())
    assert "turned-back:cpu" in rates
    assert "weights:cpu:float32" not in rates or "cpu" in rates
    assert dict(found.spreads).keys() <= rates.keys()
    assert all(spread >= 0 for _, spread in found.spreads)
    assert all(isinstance(event, CalibrationProgressed) for event in told)
    progress = [event.done for event in told if isinstance(event, CalibrationProgressed)]
    assert progress == sorted(progress)
    assert found.seconds >= progress[-1]
    assert [device.id for device in found.machine.devices] == [device.id for device in machine.devices]
    assert list(tmp_path.iterdir()) == [], "its files are gone"


def test_larger_layers_take_longer(tmp_path: Path) -> None:
    """One layer of 25 MB takes longer than one of 50 KB on any machine: so RAM has a rate."""
    sizes = replace(TINY, large=StackSize(2, 1024, 3072))
    found, _ = measure(tmp_path, sizes=sizes)
    rates = dict(found.machine.bandwidths)
    assert rates["cpu"] > 0
    assert {"weights:cpu:float32"} <= set(rates)


@pytest.mark.simulated
@pytest.mark.parametrize("unified", [False, True])
def test_accelerators_are_measured_each(simulated: Callable[..., ModuleType], tmp_path: Path, unified: bool) -> None:
    simulated(devices=[64 << 20, 64 << 20], unified=unified)
    found, _ = measure(tmp_path)
    rates = dict(found.machine.bandwidths)
    for place in ("sim:0", "sim:1"):
        assert {place, f"overhead:{place}", f"matrix:{place}:float32", f"turned-back:{place}"} <= set(rates)
        assert {f"bus:{place}:{way}-{kind}" for way in ("to", "from") for kind in ("pinned", "pageable")} <= set(rates)
    assert rates["bus"] == min(rates["bus:sim:0:to-pageable"], rates["bus:sim:1:to-pageable"])


@pytest.mark.simulated
def test_an_accelerator_without_room_has_no_rates_and_stops_nothing(
    simulated: Callable[..., ModuleType], tmp_path: Path
) -> None:
    torch_sim = simulated(devices=[64 << 20])
    machine = survey_machine(tmp_path)
    full = replace(
        machine,
        devices=tuple(replace(device, free=0) if device.id == "sim:0" else device for device in machine.devices),
    )
    rates = dict(measure(tmp_path, full)[0].machine.bandwidths)
    assert "overhead:sim:0" not in rates
    assert "matrix:cpu:float32" in rates
    assert torch_sim.memory_allocated(0) == 0


def test_a_disk_that_can_not_be_measured_is_unknown(tmp_path: Path) -> None:
    """A file where the folder should be: nothing can be written there."""
    (tmp_path / "file").write_text("")
    rates = dict(measure(tmp_path / "file" / "below")[0].machine.bandwidths)
    assert not {"disk", "disk-load", "disk-ring", "overhead:disk"} & set(rates)
    assert "matrix:cpu:float32" in rates


def test_a_file_that_stays_in_memory_gives_no_cold_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_probes, "forget_file", lambda _file: None)
    monkeypatch.setattr(disk_probes, "bytes_read", lambda: 0)
    rates = dict(measure(tmp_path)[0].machine.bandwidths)
    assert not {"disk", "disk-load"} & set(rates)


def test_a_system_that_can_not_forget_files_gives_no_cold_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    rates = dict(measure(tmp_path)[0].machine.bandwidths)
    assert not {"disk", "disk-load"} & set(rates)


def test_too_little_ram_is_left_alone(tmp_path: Path) -> None:
    huge = replace(TINY, large=StackSize(2, 2**17, 2**19))
    rates = dict(measure(tmp_path, sizes=huge)[0].machine.bandwidths)
    assert not {"cpu", "overhead:cpu"} & set(rates)
    assert "matrix:cpu:float32" in rates


@pytest.mark.parametrize("stop_at", ["Looking for devices", "Writing layers to disk", "Layers on disk"])
def test_a_stop_is_obeyed_and_leaves_no_file(tmp_path: Path, stop_at: str) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, CalibrationProgressed) and event.stage == stop_at:
            job.stop.set()

    job = Job(listen)
    with pytest.raises(Stopped):
        calibrate(CalibrateRequest(str(tmp_path), ENOUGH), job, sizes=TINY)
    assert list(tmp_path.iterdir()) == []


def test_no_time_at_all_gives_no_rates(tmp_path: Path) -> None:
    found = calibrate(CalibrateRequest(str(tmp_path), 0.0), Job(lambda event: None), sizes=TINY)
    assert found.machine.bandwidths == ()


def test_the_engine_answers_with_the_machine(engine: TorchEngine, tmp_path: Path) -> None:
    told: list[Event] = []
    engine.carry_out(CalibrateRequest(str(tmp_path), 0.0), Job(told.append))
    assert isinstance(told[-1], MachineCalibrated)
    assert told[-1].machine.has("cpu")


def test_the_largest_cache_is_read(tmp_path: Path) -> None:
    for number, words in enumerate(("48K\n", "2048K\n", "32M\n", "?\n")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(words)
    assert last_level_cache(tmp_path) == 32 * 2**20
    assert last_level_cache(tmp_path / "absent") == 64 * 2**20
