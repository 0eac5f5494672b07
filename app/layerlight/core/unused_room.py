"""Unused room: why a place holds no more than it does, shown by plans that would fill it further."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from layerlight.core.device import DISK, format_size
from layerlight.core.errors import LayerlightError
from layerlight.core.pacing.correction import uncorrected
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Fuller:
    """The plan with one more layer on a place, all others where they are."""

    layer: str
    place: str
    lacking: int
    """Bytes that would have no place; 0 when it fits."""
    slower: float
    """Seconds of the workload that it takes longer; below 0 it would be faster."""
    runs_otherwise: bool = False
    """Whether it fits only with other layers run elsewhere than the plan runs them, as by the CPU in place."""

    @property
    def is_refuted(self) -> bool:
        """Whether the plan is right not to do this: there is no room, or nothing is gained."""
        return self.lacking > 0 or self.slower >= 0


def fuller_plans(plan: Plan, place: str) -> Iterator[Fuller]:
    """With each layer that rests elsewhere moved to `place`, the smallest first; of layers that are alike one.

    Layers that share weights move together; what can't be moved by itself is left out.
    """
    seconds = uncorrected(plan).prediction.workload_seconds
    seen: set[tuple[object, ...]] = set()
    for placement in sorted(plan.placements, key=lambda each: each.size):
        layer = plan.model.layer(placement.layer)
        alike = (layer.kind, placement.size, placement.rests_on, placement.dtype)
        if placement.rests_on == place or not placement.size or alike in seen:
            continue
        seen.add(alike)
        together = next((group for group in plan.model.tied if layer.name in group), (layer.name,))
        places = {**plan.device_map(), **dict.fromkeys(together, place)}
        try:
            other = make_plan(
                plan.model, plan.machine, plan.budget, replace(plan.wishes, map=tuple(places.items()), pins=())
            )
        except LayerlightError:
            continue
        moved = zip(plan.placements, other.placements, strict=True)
        otherwise = any(now.runs_on != then.runs_on for now, then in moved if now.layer not in together)
        slower = other.prediction.workload_seconds - seconds
        yield Fuller(layer.name, place, other.shortfall, slower, otherwise)


def idle_words(plan: Plan, place: str) -> str:
    """Why nothing is on a place, in a few words; empty when something is. Nothing is planned anew."""
    if place in plan.places or any(each.runs_on == place for each in plan.placements):
        return ""
    if plan.budget.limit(place) == 0:
        return "kept out by its limit"
    if plan.wishes.map:
        return "the map puts nothing here"
    accelerators = {device.id for device in plan.machine.accelerators}
    if place == DISK:
        return "not needed: memory has room for all"
    if not accelerators & {place} or set(plan.places) <= accelerators:
        return "not needed: what is in use has room for all"
    if plan.wishes.quantization or plan.model.quantization:
        return "slower with it, or too small: quantised layers rest all on accelerators or all in RAM"
    carried = "on disk" if DISK in plan.places else "in RAM"
    return f"slower with it, or too small: what rests {carried} would still be read for every token"


def unused_words(plan: Plan, place: str) -> str:
    """Why bytes stay unused on a place, in a sentence; empty when nothing rests elsewhere that could move there."""
    use = plan.prediction.use(place)
    found = next(fuller_plans(plan, place), None)
    if found is None or use.capacity is None or not found.is_refuted:
        return ""
    name = plan.machine.device(place).name
    if found.lacking:
        free, lacking = format_size(max(0, use.capacity - use.used)), format_size(found.lacking)
        return f"{name} keeps {free} unused: for {found.layer}, the smallest elsewhere, {lacking} are missing."
    if found.runs_otherwise:
        longer = f"that would take {format_seconds(found.slower)} longer"
        return f"{name} has room for {found.layer} only if other layers run elsewhere, and {longer}."
    return f"{name} has room for {found.layer}, but with it the work would take {format_seconds(found.slower)} longer."


def format_seconds(seconds: float) -> str:
    """`2.4 s`, or `3 ms` below a tenth of a second."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
