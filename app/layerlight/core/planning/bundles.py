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
from layerlight.core.speed import WORKING, Prices, Seconds, Shares, Traffic, traffic_of


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


@dataclass(frozen=True, slots=True)
class _Kept:
    """A bundle kept on `places`, one for each part; `uses` are bytes of places."""

    places: tuple[str, ...]
    runs_on: str
    needs: frozenset[str]
    uses: tuple[tuple[str, int], ...]
    transient: int
    cost: float


class Ways:
    """The ways to keep a bundle on sets of devices, each priced once."""

    def __init__(self, prices: Prices, places: Sequence[str], cost: Callable[[Unit, str, float], float]) -> None:
        """`places` are all that may be used; `cost(unit, place, seconds)` is what a plan wants little of."""
        self._prices, self._places, self._cost = prices, tuple(places), cost
        self._seconds: dict[tuple[int, str, str], list[Seconds]] = {}
        self._kept: dict[Hashable, tuple[_Kept, ...]] = {}
        self._known: dict[tuple[int, str, str, str, Shares], float] = {}

    def of(
        self, bundle: Bundle, devices: DeviceSet, shares: Shares = WORKING
    ) -> tuple[tuple[Way, ...], tuple[tuple[str, ...], ...]]:
        """(ways, for each the place of every part): those that run all parts on one device and keep to the pins.

        Experts that stay in RAM are the one part that may run elsewhere: hidden states go there and come back. Where
        the CPU runs whole layers beside accelerators, each way costs its `shares`.
        """
        at = {room.device.id: index for index, room in enumerate(devices.rooms)}
        at.setdefault(devices.main, 0)
        ways, labels = [], []
        for each in self._every(bundle, devices, shares):
            if not each.needs <= at.keys():
                continue
            uses = [0] * len(at)
            for place, size in each.uses:
                uses[at[place]] += size
            rests = tuple(sorted({at[place] for place in each.places}))
            ways.append(Way(each.cost, tuple(uses), each.transient, rests, at[each.runs_on]))
            labels.append(each.places)
        return tuple(ways), tuple(labels)

    def _every(self, bundle: Bundle, devices: DeviceSet, shares: Shares) -> tuple[_Kept, ...]:
        """On all places of the machine: what layers at rest cost depends on what runs them alone."""
        key = (bundle.kind, devices.main, devices.stays, bool(devices.accelerators), shares)
        known = self._kept.get(key)
        if known is None:
            choices = product(*(self._allowed(part) for part in bundle.parts))
            every = (self._keep(bundle, places, devices, shares) for places in choices)
            known = self._kept[key] = tuple(each for each in every if each is not None)
        return known

    def _keep(self, bundle: Bundle, places: tuple[str, ...], devices: DeviceSet, shares: Shares) -> _Kept | None:
        runs = [devices.runs_on(place, part.layer_kind) for part, place in zip(bundle.parts, places, strict=True)]
        if not runs_together(runs):
            return None
        transient, cost = 0, 0.0
        uses: list[tuple[str, int]] = []
        for part, place, run in zip(bundle.parts, places, runs, strict=True):
            uses += (place, part.unit.size), (runs[0], part.unit.kv)
            transient = max(transient, part.unit.passing(place, run) if run == devices.main else 0)
            if devices.accelerators:
                cost += self._price(part, place, run, runs[0], shares)
            else:
                cost += self._read(part, place)
        return _Kept(places, runs[0], frozenset((*places, runs[0])), tuple(uses), transient, cost)

    def _allowed(self, part: Part) -> tuple[str, ...]:
        return self._places if part.pinned is None else (part.pinned,)

    def _read(self, part: Part, place: str) -> float:
        """Where the CPU runs everything a placement decides only what is read: all work is the same in each."""
        known = self._known.get((part.kind, place, "", "", WORKING))
        if known is None:
            seconds = sum(self._prices.reading(self._prices.layer(each, place, CPU)) for each in part.traffic)
            known = self._known[part.kind, place, "", "", WORKING] = self._cost(part.unit, place, seconds)
        return known

    def _price(self, part: Part, place: str, run: str, outer: str, shares: Shares) -> float:
        """Of a part that rests on `place` and runs on `run`, in a layer that runs on `outer`."""
        known = self._known.get((part.kind, place, run, outer, shares))
        if known is None:
            prices = self._prices
            seconds = sum(prices.shared(each, shares) for each in self._layers(part, place, run))
            if run != outer:
                seconds += prices.shared(prices.hand_over(outer, run), shares)
                seconds += prices.shared(prices.hand_over(run, outer), shares)
            known = self._known[part.kind, place, run, outer, shares] = self._cost(part.unit, place, seconds)
        return known

    def _layers(self, part: Part, place: str, run: str) -> list[Seconds]:
        known = self._seconds.get((part.kind, place, run))
        if known is None:
            known = [self._prices.layer(each, place, run) for each in part.traffic]
            self._seconds[part.kind, place, run] = known
        return known


def runs_together(runs: Sequence[str]) -> bool:
    """Whether a layer, which is the first, and its experts can run on these places."""
    return all(run in (runs[0], CPU) for run in runs[1:])
