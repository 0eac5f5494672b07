"""When nothing fits: the placement that lacks little, so that the shortfall can be told in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerlight.core.planning.device_sets import DeviceSet
from layerlight.core.planning.puzzle import UNBOUNDED
from layerlight.core.planning.units import Unit
from layerlight.core.sizing.work import Work


def nearest_fit(
    units: Sequence[Unit], devices: DeviceSet, work: Mapping[str, Work], pins: Mapping[int, str]
) -> tuple[str, ...]:
    """Units on the first place that has room for them, the largest first; what finds none lies where most is left.

    What carried units need where they run grows with their number, so the filling is repeated until that is kept free.
    """
    held = 0
    while True:
        places = _fill(units, devices, work, pins, held)
        carried = [unit for unit, place in zip(units, places, strict=True) if devices.runs_on(place) != place]
        passing = max(
            (unit.passing(place, devices.runs_on(place)) for unit, place in zip(units, places, strict=True)), default=0
        )
        needed = sum(unit.kv for unit in carried) + passing
        if needed <= held:
            return places
        held = needed


def _fill(
    units: Sequence[Unit], devices: DeviceSet, work: Mapping[str, Work], pins: Mapping[int, str], held: int
) -> tuple[str, ...]:
    left = {room.device.id: UNBOUNDED if room.capacity is None else room.capacity for room in devices.rooms}
    running = {devices.main, *(room.device.id for room in devices.accelerators)}
    for place in running & left.keys():
        left[place] -= work[place].most + (held if place == devices.main else 0)
    chosen: dict[int, str] = {}
    for number in sorted(range(len(units)), key=lambda number: (number not in pins, -units[number].size, number)):
        unit = units[number]
        needed = {place: unit.size + (unit.kv if place in running else 0) for place in left}
        roomy = [place for place in left if needed[place] <= left[place]]
        place = pins.get(number) or (roomy[0] if roomy else max(left, key=lambda each: left[each]))
        left[place] -= needed[place]
        chosen[number] = place
    return tuple(chosen[number] for number in range(len(units)))
