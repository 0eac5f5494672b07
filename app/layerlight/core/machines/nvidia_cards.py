"""What NVIDIA's own library tells of its cards, where nvidia-ml-py is installed: load, temperature, power, holders."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from layerlight.core.device import LARGEST_SIZE, Device
from layerlight.core.machines.sensors import Holder, own_processes

LIBRARY = "pynvml"
"""The module that nvidia-ml-py brings."""


@dataclass(frozen=True, slots=True)
class Card:
    """None is what the driver does not tell."""

    name: str
    load: float | None = None
    """The part of the time in which a kernel ran."""
    celsius: int | None = None
    watts: float | None = None
    largest: Holder | None = None
    """Of other programs the one that holds most of its memory."""


def read_cards(library: str = LIBRARY) -> tuple[Card, ...]:
    """All cards of the driver, in its order; none where the library or the driver is missing. Never raises.

    A driver may hang: call it on a thread that nobody waits for.
    """
    try:
        nvml = importlib.import_module(library)
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    except (nvml.NVMLError, OSError):
        return ()
    return tuple(_card(nvml, handle) for handle in handles)


def card_of(device: Device, devices: Iterable[Device], cards: Sequence[Card]) -> Card | None:
    """The card that a device is; None where that can't be told, as when torch does not see all cards of its name."""
    if device.kind != "cuda":
        return None
    alike = [each.id for each in devices if each.name == device.name]
    named = [each for each in cards if each.name == device.name]
    return named[alike.index(device.id)] if len(alike) == len(named) and device.id in alike else None


def _card(nvml: Any, handle: Any) -> Card:
    def told(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (nvml.NVMLError, AttributeError, UnicodeDecodeError):
            return None

    name = told(lambda: nvml.nvmlDeviceGetName(handle))
    load = told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    power = told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    computing = told(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    drawing = told(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) or []
    return Card(
        name.decode(errors="replace") if isinstance(name, bytes) else str(name or ""),
        load / 100 if isinstance(load, int) and 0 <= load <= 100 else None,
        told(lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
        power / 1000 if isinstance(power, int) and power >= 0 else None,
        _largest([*computing, *drawing]),
    )


def _largest(holders: Sequence[Any]) -> Holder | None:
    """Under Windows the driver does not tell how much a process holds."""
    own = own_processes()
    sizes = [(each.usedGpuMemory, each.pid) for each in holders if each.pid not in own]
    known = [(size, pid) for size, pid in sizes if isinstance(size, int) and 0 < size <= LARGEST_SIZE]
    if not known:
        return None
    size, pid = max(known)
    try:
        return Holder(psutil.Process(pid).name(), size)
    except (psutil.Error, OSError):
        return Holder(f"process {pid}", size)
