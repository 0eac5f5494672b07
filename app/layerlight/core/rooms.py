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


def rooms_of(machine: Machine, budget: Budget) -> tuple[Room, ...]:
    """Places in the order they are filled. Raises DoesNotFit when every place is forbidden.

    A limit of 0 takes a place away. Unified memory is one pool: while its accelerator may be used, RAM is no second
    tier beside it, unless the person gave RAM a limit of its own.
    """
    rooms: list[Room] = []
    pooled = False
    for device in sorted(machine.devices, key=_speed_order):
        limit = budget.limit(device.id)
        if limit == 0 or (device.id == CPU and pooled and limit is None):
            continue
        rooms.append(Room(device, _capacity(device, limit, budget)))
        pooled = pooled or device.shares_memory_with == CPU
    if not rooms:
        raise DoesNotFit("Every place has a limit of 0.", hint="Give at least one place some room.")
    return tuple(rooms)


def reserve(device: Device, budget: Budget) -> int:
    """Bytes that stay free on a device: the person's own choice, else the plan's margin."""
    return dict(budget.reserve).get(device.id, memory.margin(device))


def candidates(rooms: tuple[Room, ...], quantized: bool) -> tuple[tuple[Room, ...], ...]:
    """Sets of rooms to try in turn, the fastest first: one device alone, all of them, then no accelerator.

    bitsandbytes refuses a map that mixes accelerators with RAM or has disk in it, so quantised models get either.
    """
    if quantized:
        rooms = tuple(room for room in rooms if room.device.kind in QUANTIZING_KINDS)
    accelerators = tuple(room for room in rooms if room.device.is_accelerator)
    others = tuple(room for room in rooms if not room.device.is_accelerator)
    together = accelerators if quantized else rooms
    tried = [*((room,) for room in accelerators), together if accelerators else (), others]
    return tuple(each for each in tried if each)


def _speed_order(device: Device) -> int:
    return 0 if device.is_accelerator else 1 if device.id == CPU else 2


def _capacity(device: Device, limit: int | None, budget: Budget) -> int | None:
    if device.id == DISK or device.free is None:
        return limit
    free = max(0, device.free - reserve(device, budget))
    return free if limit is None else min(limit, free)
