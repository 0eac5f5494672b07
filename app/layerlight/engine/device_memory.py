"""Bytes in use on every place now, measured."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from layerlight.core.device import CPU, DISK, Device
from layerlight.core.folders import own_folders
from layerlight.core.machines.local_memory import disk, ram
from layerlight.core.messages import PlacedLayer, PlaceMemory
from layerlight.engine.accelerators import Accelerator, describe, find_accelerators, read_memory, reset_peak

PROCESS_STATUS = Path("/proc/self/status")
PEAK_RESET = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """RAM of this process in bytes; None where the system doesn't tell."""

    resident: int | None = None
    peak: int | None = None
    anonymous: int | None = None
    """The part that is no view of a file: what can only be freed, not read again."""


def measure_memory(placed: Iterable[PlacedLayer] = (), disk_folder: Path | None = None) -> tuple[PlaceMemory, ...]:
    """Each place's bytes now, in the survey's order; `placed` are the loaded model's layers. Never raises."""
    resting: Counter[str] = Counter()
    for layer in placed:
        resting[layer.rests_on] += layer.size
    memory, process = ram(), process_memory()
    accelerators, _ = find_accelerators()
    storage = disk(disk_folder or own_folders().offload)
    return (
        *(_on_accelerator(each, memory, resting[each.id]) for each in accelerators),
        PlaceMemory(
            CPU, memory.total, memory.free, resting[CPU], process.peak, process.resident, process.anonymous
        ),
        PlaceMemory(DISK, storage.total, storage.free, resting[DISK]),
    )  # fmt: skip


def reset_peaks() -> None:
    """Begins new peaks, on every device and for the process (Linux); call it before a load. Never raises."""
    for accelerator in find_accelerators()[0]:
        reset_peak(accelerator)
    with contextlib.suppress(OSError):
        if PEAK_RESET.exists():
            PEAK_RESET.write_text("5")  # resets VmHWM to what is resident now


def process_memory() -> ProcessMemory:
    """This process's RAM: from /proc on Linux, else from psutil."""
    status = _read(PROCESS_STATUS)
    if status:
        return parse_status(status)
    try:
        process = psutil.Process()
        basic, full = process.memory_info(), process.memory_full_info()
    except (psutil.Error, OSError):
        return ProcessMemory()
    # Windows calls what no file backs “private”; macOS tells the part that only this process maps
    anonymous = getattr(basic, "private", getattr(full, "uss", None))
    return ProcessMemory(basic.rss, getattr(basic, "peak_wset", None), anonymous)


def parse_status(text: str) -> ProcessMemory:
    """From the words of /proc/self/status, which counts in kB of 1,024 bytes."""
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            sizes[name] = int(words[0]) * 1024
    return ProcessMemory(sizes.get("VmRSS"), sizes.get("VmHWM"), sizes.get("RssAnon"))


def _on_accelerator(accelerator: Accelerator, ram: Device, model: int) -> PlaceMemory:
    memory = read_memory(accelerator)
    device = describe(accelerator, memory, ram)
    return PlaceMemory(accelerator.id, device.total, device.free, model, memory.peak, memory.process)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
