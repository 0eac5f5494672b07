"""Bundles: a layer and its experts, which may rest apart but run on one device, or the experts in RAM."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from layerlight.core.device import CPU
from layerlight.core.model import LayerKind, TextShape
from layerlight.core.planning.device_sets import DeviceSet
from layerlight.core.planning.puzzle import Way
from layerlight.core.planning.units import Unit
from layerlight.core.speed import Prices, Traffic, traffic_of


@dataclass(frozen=True, slots=True)
class Part:
    """A unit with its traffic and the place it is pinned to, if any. `kind` is equal for parts that are alike."""

    unit: Unit
    traffic: tuple[Traffic, ...]
    pinned: str | None
    kind: int

    @property
    def layer_kind(self) -> LayerKind:
        return self.unit.layers[0].kind


@dataclass(frozen=True, slots=True)
class Bundle:
    """Parts in the model's order, beginning with unit number `first`. A layer and its experts are one bundle."""

    first: int
    parts: tuple[Part, ...]

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for bundles that are alike."""
        return tuple(part.kind for part in self.parts)

    @property
    def numbers(self) -> range:
        """Numbers of its units."""
        return range(self.first, self.first + len(self.parts))


def bundles_of(
    units: Sequence[Unit], shape: TextShape, quantization: str | None, pins: Mapping[int, str]
) -> tuple[Bundle, ...]:
    """The units' bundles, in order; `pins` gives places by number of unit."""
    found: list[Bundle] = []
    kinds: dict[Hashable, int] = {}
    traffics: dict[int, tuple[Traffic, ...]] = {}
    for number, unit in enumerate(units):
        pinned = pins.get(number)
        key = (unit.weights, unit.kv, tuple(layer.kind for layer in unit.layers), pinned)
        kind = kinds.setdefault(key, len(kinds))
        traffic = traffics.get(kind)
        if traffic is None:
            traffic = traffics[kind] = traffic_of(unit, shape, quantization)
        part = Part(unit, traffic, pinned, kind)
        if found and _belongs(unit, found[-1]):
            found[-1] = Bundle(found[-1].first, (*found[-1].parts, part))
        else:
            found.append(Bundle(number, (part,)))
    return tuple(found)


def _belongs(unit: Unit, bundle: Bundle) -> bool:
    """Whether a unit lies inside a layer of the bundle: its hidden states are added up there."""
    outer = bundle.parts[0].unit.layers[0]
    inner = unit.layers[0]
    return (
        outer.kind is LayerKind.DECODER and inner.kind is LayerKind.EXPERTS and inner.name.startswith(f"{outer.name}.")
    )


class Ways:
    """The ways to keep a bundle on sets of devices, each priced once."""

    def __init__(self, prices: Prices, cost: Callable[[Unit, str, float], float]) -> None:
        """`cost(unit, place, seconds)` is what a plan wants little of."""
        self._prices, self._cost = prices, cost
        self._known: dict[tuple[int, str, str, str], float] = {}

    def of(self, bundle: Bundle, devices: DeviceSet) -> tuple[tuple[Way, ...], tuple[tuple[str, ...], ...]]:
        """(ways, for each the place of every part): those that run all parts on one device and keep to the pins.

        Experts that stay in RAM are the one part that may run elsewhere: hidden states go there and come back.
        """
        at = {room.device.id: index for index, room in enumerate(devices.rooms)}
        main = at.setdefault(devices.main, 0)
        ways, labels = [], []
        for places in product(*(self._allowed(part, tuple(at)) for part in bundle.parts)):
            runs_on = devices.runs_on(places[0])
            runs = [devices.runs_on(place, part.layer_kind) for part, place in zip(bundle.parts, places, strict=True)]
            if runs_on not in at or not runs_together(runs):
                continue
            uses = [0] * len(at)
            transient, cost = 0, 0.0
            for part, place, run in zip(bundle.parts, places, runs, strict=True):
                uses[at[place]] += part.unit.size
                uses[at[runs_on]] += part.unit.kv
                transient = max(transient, part.unit.passing(place, run) if run == devices.main else 0)
                cost += self._read(part, place) if devices.main == CPU else self._price(part, place, run, runs_on)
            rests = tuple(sorted({at[place] for place in places}))
            ways.append(Way(cost, tuple(uses), transient, rests, main if runs_on == devices.main else at[runs_on]))
            labels.append(places)
        return tuple(ways), tuple(labels)

    def _allowed(self, part: Part, places: tuple[str, ...]) -> tuple[str, ...]:
        return places if part.pinned is None else tuple(place for place in places if place == part.pinned)

    def _read(self, part: Part, place: str) -> float:
        """Where the CPU runs everything a placement decides only what is read: all work is the same in each."""
        known = self._known.get((part.kind, place, "", ""))
        if known is None:
            seconds = sum(self._prices.reading(self._prices.layer(each, place, CPU)) for each in part.traffic)
            known = self._known[part.kind, place, "", ""] = self._cost(part.unit, place, seconds)
        return known

    def _price(self, part: Part, place: str, run: str, outer: str) -> float:
        """Of a part that rests on `place` and runs on `run`, in a layer that runs on `outer`."""
        known = self._known.get((part.kind, place, run, outer))
        if known is None:
            seconds = sum(self._prices.one_by_one(self._prices.layer(each, place, run)) for each in part.traffic)
            seconds += self._prices.of(self._prices.hand_over(outer, run))
            seconds += self._prices.of(self._prices.hand_over(run, outer))
            known = self._known[part.kind, place, run, outer] = self._cost(part.unit, place, seconds)
        return known


def runs_together(runs: Sequence[str]) -> bool:
    """Whether a layer, which is the first, and its experts can run on these places."""
    return all(run in (runs[0], CPU) for run in runs[1:])
