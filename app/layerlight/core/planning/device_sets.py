"""Sets of devices that a plan may use: which accelerators, and what may rest beside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import combinations

from layerlight.core.device import CPU, DISK
from layerlight.core.model import LayerKind
from layerlight.core.planning.rooms import QUANTIZING_KINDS, Room
from layerlight.core.sizing.work import Work


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Accelerators in the machine's order, then the places where layers only rest while one is in use.

    The first accelerator runs what rests in RAM or on disk; without any the CPU does. With `experts_stay` experts that
    rest there are run there, by the CPU, whatever device runs the rest of their layer.
    """

    accelerators: tuple[Room, ...]
    others: tuple[Room, ...]
    experts_stay: bool = False

    @property
    def main(self) -> str:
        return self.accelerators[0].device.id if self.accelerators else CPU

    @property
    def rooms(self) -> tuple[Room, ...]:
        """Every place that may keep layers, that which runs carried ones first."""
        return (*self.accelerators, *self.others)

    def carrying_room(self, work: Work) -> int:
        """Of a pass's work on the main device what carried weights may take: nothing of it where they lie in a ring's
        buffers, which stay."""
        return 0 if self.main == CPU else work.carrying_room

    def runs_on(self, place: str, kind: LayerKind = LayerKind.OTHER) -> str:
        """Where a layer of this kind runs that rests there."""
        if place not in (CPU, DISK):
            return place
        return CPU if self.experts_stay and kind is LayerKind.EXPERTS else self.main


def device_sets(
    rooms: tuple[Room, ...],
    quantized: bool,
    pinned: frozenset[str],
    alike: dict[str, Hashable],
    experts: bool = False,
) -> Iterator[DeviceSet]:
    """Every set worth a look, few accelerators first; of sets that differ only in which of equal devices, the first.

    A model whose `experts` lie apart and could run in RAM gets each set twice: they are carried, or run there.
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
            if experts and may_stay(chosen, others):
                yield DeviceSet(chosen, others, experts_stay=True)


def may_stay(accelerators: tuple[Room, ...], others: tuple[Room, ...]) -> bool:
    """Whether experts may run in RAM beside these accelerators: it must be a tier of its own, and usable."""
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
