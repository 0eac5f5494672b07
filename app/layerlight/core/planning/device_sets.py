"""Sets of devices that a plan may use: which accelerators, and what may rest beside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from layerlight.core.device import CPU, DISK
from layerlight.core.model import LayerKind
from layerlight.core.planning.rooms import QUANTIZING_KINDS, Room


class Stays(Enum):
    """What the CPU computes in place, of layers that rest in RAM or on disk beside an accelerator."""

    NOTHING = "nothing"
    """All are carried to the first accelerator."""
    EXPERTS = "experts"
    """Experts, whatever device runs the rest of their layer; other layers are carried."""
    ALL = "all"
    """All: hidden states cross, weights never do."""


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Accelerators in the machine's order, and the places beside them. Without accelerators the CPU runs everything."""

    accelerators: tuple[Room, ...]
    others: tuple[Room, ...]
    stays: Stays = Stays.NOTHING

    @property
    def main(self) -> str:
        """What runs layers that rest in RAM or on disk, but for experts that stay."""
        return self.accelerators[0].device.id if self.accelerators and self.stays is not Stays.ALL else CPU

    @property
    def shares_work(self) -> bool:
        """Whether the CPU runs whole layers beside accelerators."""
        return self.stays is Stays.ALL and bool(self.accelerators)

    @property
    def rooms(self) -> tuple[Room, ...]:
        """Every place that may keep layers, the main one first."""
        if self.stays is not Stays.ALL:
            return (*self.accelerators, *self.others)
        return tuple(sorted((*self.accelerators, *self.others), key=lambda room: room.device.id != CPU))

    @property
    def running(self) -> int:
        """How many devices run layers."""
        return len(self.accelerators) + self.shares_work or 1

    def runs_on(self, place: str, kind: LayerKind = LayerKind.OTHER) -> str:
        """Where a layer of this kind runs that rests there."""
        if place not in (CPU, DISK):
            return place
        return CPU if self.stays is Stays.EXPERTS and kind is LayerKind.EXPERTS else self.main


def device_sets(
    rooms: tuple[Room, ...],
    quantized: bool,
    pinned: frozenset[str],
    alike: dict[str, Hashable],
    stays: tuple[Stays, ...] = (),
) -> Iterator[DeviceSet]:
    """Every set worth a look, few accelerators first; of sets that differ only in which of equal devices, the first.

    Where RAM is a tier of its own each set comes again for each of `stays`, what the CPU could compute in place.
    bitsandbytes refuses a map that mixes accelerators with RAM or has disk in it, so quantised models get either.
    `alike` tells what a device is worth: equal for devices that may stand for each other.
    """
    if quantized:
        rooms = tuple(room for room in rooms if room.device.kind in QUANTIZING_KINDS)
    accelerators = tuple(room for room in rooms if room.device.is_accelerator)
    resting = tuple(room for room in rooms if not room.device.is_accelerator)
    seen: set[Hashable] = set()
    for count in range(len(accelerators) + 1):
        for chosen in combinations(accelerators, count):
            others = () if quantized and chosen else tuple(room for room in resting if _may_rest(room, chosen))
            every = {room.device.id for room in (*chosen, *others)}
            worth = tuple(alike[room.device.id] for room in chosen)
            runs = chosen or any(room.device.id == CPU for room in others)
            if worth in seen or not pinned <= every or not runs:
                continue
            seen.add(worth)
            yield DeviceSet(chosen, others)
            if stays and may_stay(chosen, others):
                yield from (DeviceSet(chosen, others, each) for each in stays)


def may_stay(accelerators: tuple[Room, ...], others: tuple[Room, ...]) -> bool:
    """Whether layers may run in RAM beside these accelerators: it must be a tier of its own, and usable."""
    unified = any(room.device.shares_memory_with == CPU for room in accelerators)
    return bool(accelerators) and not unified and any(room.device.id == CPU for room in others)


def _may_rest(room: Room, accelerators: tuple[Room, ...]) -> bool:
    """Unified memory is one pool: RAM is no second tier beside its accelerator, unless a person gave it a limit.

    On a Mac not even then: accelerate moves what should rest in RAM to Metal.
    """
    if room.device.id != CPU:
        return True
    pooled = [each for each in accelerators if each.device.shares_memory_with == CPU]
    return not pooled or (room.limited and all(each.device.kind != "mps" for each in pooled))
