"""torch's accelerators, each read through its own torch module: name, number and memory come from one source."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from layerlight.core.device import CPU, Device
from layerlight.core.machines.local_memory import believable

log = logging.getLogger(__name__)

READING_FAILURES = (RuntimeError, AssertionError, AttributeError, OSError, TypeError, ValueError, KeyError, ImportError)
"""What torch's device modules raise without a driver, with a broken one, or where a function isn't offered."""

UNNAMED_BACKEND = "privateuseone"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One of torch's accelerators. `index` is torch's own number, whatever order another tool lists the cards in."""

    kind: str
    """`cuda`, `rocm`, `xpu`, `mps`, or the name of a backend that registered itself with torch."""
    torch_kind: str
    """What torch calls it: `cuda` also for ROCm."""
    index: int

    @property
    def id(self) -> str:
        """`cuda:0`, `xpu:1`, `sim:0`; mps has one device, written without a number."""
        return self.torch_kind if self.torch_kind == "mps" else f"{self.torch_kind}:{self.index}"

    @property
    def module(self) -> Any:
        return getattr(torch, self.torch_kind)


@dataclass(frozen=True, slots=True)
class AcceleratorMemory:
    """Bytes; None where they can't be read."""

    total: int | None
    free: int | None
    process: int | None
    """What this process holds there, caches included."""
    peak: int | None


def find_accelerators() -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """(the accelerators that torch can use, sentences about those it could not ask). Never raises."""
    found: list[Accelerator] = []
    problems: list[str] = []
    for torch_kind, kind in _kinds():
        count, reason = _ask(torch_kind)
        if reason and not count:
            problems.append(f"{kind} devices can't be used: {reason}")
        found += [Accelerator(kind, torch_kind, index) for index in range(count)]
    return tuple(found), tuple(problems)


def describe(accelerator: Accelerator, memory: AcceleratorMemory, ram: Device) -> Device:
    """The accelerator as a place. One that shares RAM is no larger and no freer than RAM is."""
    properties, note = None, ""
    try:
        properties = _properties(accelerator)
        name = str(properties.name) if properties is not None else _metal_name()
    except READING_FAILURES as error:
        name, note = f"{accelerator.kind} device", f"It can't be asked: {first_line(error)}"
    shared = accelerator.kind == "mps" or is_integrated(properties)
    device = Device(accelerator.id, accelerator.kind, name, memory.total, memory.free, note=note)
    if accelerator.kind == "cuda" and properties is not None:
        device = replace(device, capability=_capability(properties))
    return _one_pool(device, ram) if shared else device


def _capability(properties: Any) -> tuple[int, int] | None:
    major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
    return (major, minor) if isinstance(major, int) and isinstance(minor, int) else None


def read_memory(accelerator: Accelerator) -> AcceleratorMemory:
    """The accelerator's memory now. Never raises."""
    if accelerator.kind == "mps":
        return _metal_memory(accelerator.module)
    module, index = accelerator.module, accelerator.index
    free, total = _attempt(lambda: tuple(module.mem_get_info(index)), (None, None))
    if total is None:
        total = _attempt(lambda: module.get_device_properties(index).total_memory)
    known_total, known_free = believable(total, free)
    process = _known(_attempt(lambda: module.memory_reserved(index)))
    peak = _known(_attempt(lambda: module.max_memory_allocated(index)))
    return AcceleratorMemory(known_total, known_free, process, peak)


def reset_peak(accelerator: Accelerator) -> None:
    """Begins a new peak where the backend keeps one (mps does not). Never raises."""
    _attempt(lambda: accelerator.module.reset_peak_memory_stats(accelerator.index))


def is_integrated(properties: Any) -> bool:
    """Whether these device properties say that the device has no memory of its own."""
    return any(getattr(properties, name, False) is True or getattr(properties, name, 0) == 1 for name in _INTEGRATED)


_INTEGRATED = ("is_integrated", "is_integrated_gpu")
"""CUDA's and XPU's names for it."""


def first_line(error: BaseException) -> str:
    """An error's own words, without the traceback that torch appends to some."""
    words = str(error).strip()
    return words.splitlines()[0] if words else type(error).__name__


def _kinds() -> list[tuple[str, str]]:
    """(torch's name, our name) of every kind of accelerator that torch may have."""
    kinds = [("cuda", "rocm" if torch.version.hip else "cuda"), ("xpu", "xpu"), ("mps", "mps")]
    registered = torch._C._get_privateuse1_backend_name()
    if registered != UNNAMED_BACKEND and hasattr(torch, registered):
        kinds.append((registered, registered))
    return kinds


def _ask(torch_kind: str) -> tuple[int, str]:
    """(devices of this kind, why there are none as torch puts it: an error, or a warning that it gives only once)."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            count = _count(torch_kind)
        except READING_FAILURES as error:
            log.warning("asking for %s devices failed", torch_kind, exc_info=True)
            return 0, first_line(error)
    if said:
        _said[torch_kind] = str(said[0].message).partition(" (Triggered")[0].splitlines()[0]
    return count, _said.get(torch_kind, "")


_said: dict[str, str] = {}
"""What torch warned of per kind."""


def _count(torch_kind: str) -> int:
    if torch_kind == "mps":
        return 1 if torch.backends.mps.is_available() else 0
    module = getattr(torch, torch_kind)
    return int(module.device_count()) if module.is_available() else 0


def _properties(accelerator: Accelerator) -> Any:
    return None if accelerator.kind == "mps" else accelerator.module.get_device_properties(accelerator.index)


def _metal_name() -> str:
    return str(_attempt(lambda: torch.backends.mps.get_name()) or "Apple GPU")


def _metal_memory(module: Any) -> AcceleratorMemory:
    """Metal's recommended limit, and what the driver holds: torch's own counters miss part of that."""
    total, _ = believable(_attempt(lambda: module.recommended_max_memory()), None)
    process = _known(_attempt(lambda: module.driver_allocated_memory()))
    free = None if total is None or process is None else max(0, total - process)
    return AcceleratorMemory(total, free, process, None)


def _one_pool(device: Device, ram: Device) -> Device:
    """A device that shares RAM: its bytes are RAM's bytes, so neither figure may be larger than RAM's."""
    total, free = _smaller(device.total, ram.total), _smaller(device.free, ram.free)
    return Device(device.id, device.kind, device.name, total, free, shares_memory_with=CPU, note=device.note)


def _smaller(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else min(first, second)


def _known(value: object) -> int | None:
    """The bytes, if they can be true."""
    return believable(None, value)[1]


def _attempt(read: Callable[[], Any], otherwise: Any = None) -> Any:
    try:
        return read()
    except READING_FAILURES:
        log.debug("a device could not be read", exc_info=True)
        return otherwise
