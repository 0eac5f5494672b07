"""Rooms: the places a plan may fill, fastest first, and how much of each."""

from __future__ import annotations

from dataclasses import dataclass

from layerlight.core import memory
from layerlight.core.device import CPU, DISK, Budget, Device, Machine
from layerlight.core.errors import DoesNotFit

QUANTIZING_KINDS = frozenset({"cuda", "rocm", "xpu", "mps", "cpu"})
"""Kinds of device that bitsandbytes has a backend for."""


@dataclass(frozen=True, slots=True)
class Room:
    """A place and the bytes the plan may take there; None when nobody knows a bound."""

    device: Device
    capacity: int | None
    limited: bool = False
    """Whether a person set its limit."""


def rooms_of(machine: Machine, budget: Budget) -> tuple[Room, ...]:
    """Places in the order they are filled: accelerators, RAM, disk. Raises DoesNotFit when every one is forbidden.

    A limit of 0 takes a place away.
    """
    limits = [(device, budget.limit(device.id)) for device in sorted(machine.devices, key=_speed_order)]
    rooms = tuple(
        Room(device, _capacity(device, limit, budget), limit is not None) for device, limit in limits if limit != 0
    )
    if not rooms:
        raise DoesNotFit("Every place has a limit of 0.", hint="Give at least one place some room.")
    return rooms


def reserve(device: Device, budget: Budget) -> int:
    """Bytes that stay free on a device: the person's own choice, else the plan's margin."""
    return dict(budget.reserve).get(device.id, memory.margin(device))


def _speed_order(device: Device) -> int:
    return 0 if device.is_accelerator else 1 if device.id == CPU else 2


def _capacity(device: Device, limit: int | None, budget: Budget) -> int | None:
    if device.id == DISK or device.free is None:
        return limit
    free = max(0, device.free - reserve(device, budget))
    return free if limit is None else min(limit, free)
