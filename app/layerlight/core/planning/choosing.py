"""The choice of a place for every unit: the cheapest that fits, over all sets of devices, most promising first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf

from layerlight.core.device import CPU, DISK
from layerlight.core.planning.bundles import Bundle, Ways
from layerlight.core.planning.device_sets import DeviceSet, Stays
from layerlight.core.planning.optimum import Counts, Search
from layerlight.core.planning.puzzle import UNBOUNDED, Kind, Puzzle, Way, bound
from layerlight.core.planning.relaxation import tolls_of
from layerlight.core.planning.sequence import Line, Row
from layerlight.core.sizing.work import Work
from layerlight.core.speed import WAITING, WORKING, Shares

NODES = 5000
"""Steps of all searches before the best so far is taken, with what is known of how far it may be from the optimum;
twice as many for few bundles, with which a step is short."""

FEW = 8
"""So many bundles are told apart even when they are alike, so that hand-overs are searched exactly as well. Of more,
answers that differ in hand-overs alone are not all looked at: the gap tells by how much one of them may be better."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A place for every unit. `gap` is how much cheaper, as a part of its cost, the optimum might at most be."""

    places: tuple[str, ...]
    devices: DeviceSet
    gap: float = 0.0


class Choosing:
    """One choice: what is to be placed, what it costs, and the best so far."""

    def __init__(
        self,
        bundles: Sequence[Bundle],
        steps: Sequence[int],
        work: Mapping[str, Work],
        beside: int,
        ways: Ways,
        hand_over: Callable[[str, str], float],
        real: Callable[[tuple[str, ...], DeviceSet], float],
        nodes: int = NODES,
    ) -> None:
        """`steps` are numbers of bundles in the order they run; `work` is what a pass needs on a device that runs
        layers, `beside` bytes in RAM where experts run there beside an accelerator; `hand_over(place, next)` is its
        cost in the whole workload, `real(places, devices)` that of all units and hand-overs, of which some are read
        ahead."""
        self.bundles, self.work, self.beside = bundles, work, beside
        self.line = Line(steps, len(bundles))
        self.ways, self._hand_over_cost, self.real = ways, hand_over, real
        self._hand_overs: dict[tuple[str, str], float] = {}
        self.search = Search(nodes if len(bundles) > FEW else 2 * nodes)
        visited = set(steps)
        self._unvisited = sum(
            1
            for number, bundle in enumerate(bundles)
            if number not in visited and any(part.unit.size for part in bundle.parts)
        )
        numbers: dict[tuple[int, ...], int] = {}
        self._kind_of = [numbers.setdefault(bundle.kind, len(numbers)) for bundle in bundles]
        self._places: tuple[tuple[str, ...], ...] = ()
        self._devices: DeviceSet | None = None
        self._least = float("inf")
        self._complete = True

    @property
    def is_complete(self) -> bool:
        """Whether every search came to its end."""
        return self._complete

    def best(self, sets: Sequence[DeviceSet]) -> Choice | None:
        """The cheapest choice that fits; None when none does, or none was found in time."""
        number = count()
        queue: list[tuple[float, int, _Look]] = []
        for devices in sets:
            look = self.first_look(devices)
            if look is not None:
                heapq.heappush(queue, (look.floor(), next(number), look))
        while queue and queue[0][0] < self.search.ceiling and self.search.nodes > FEW:
            _, _, look = heapq.heappop(queue)
            for closer in look.closer():
                floor = closer.floor()
                if floor < self.search.ceiling:
                    heapq.heappush(queue, (floor, next(number), closer))
            if look.is_closest:
                self._search(look)
        if self._devices is None:
            return None
        if queue and queue[0][0] < self.search.ceiling:
            self._complete = False
        least = min(self._least, self.search.best, queue[0][0] if queue else self.search.best)
        gap = (self.search.best - least) / self.search.best if self.search.best > 0 else 0.0
        places = tuple(place for each in self._places for place in each)
        return Choice(places, self._devices, 0.0 if gap < 1e-9 else gap)

    def _search(self, look: _Look) -> None:
        """Searches one set, with half of the steps that are left at most: one that is hard leaves some to others."""
        left = self.search.nodes
        few = len(self.bundles) <= FEW
        self.search.nodes = left if few else left // 2
        spared = left - self.search.nodes
        self.search.improve(look.puzzle, look.tolls, look.judge, every=few)
        if self.search.nodes < 0:
            self._complete = False
            self._least = min(self._least, look.floor())
        self.search.nodes = spared + max(0, self.search.nodes)

    def first_look(self, devices: DeviceSet, shares: Shares = WORKING) -> _Look | None:
        """A rough look at a set; None when something has no way to be kept there."""
        rooms = tuple(self._room(devices, at) for at in range(len(devices.rooms)))
        if any(room < 0 for room in rooms):
            return None
        alone = devices.running > 1 and len(self.bundles) <= FEW
        kind_of = list(range(len(self.bundles))) if alone else self._kind_of
        kinds, labels = [], []
        for kind in range(max(kind_of) + 1):
            ways, places = self.ways.of(self.bundles[kind_of.index(kind)], devices, shares)
            if not ways:
                return None
            late = 2 * kind_of.index(kind) > len(kind_of)
            if not any(any(way.uses) for way in ways):  # buffers: wherever they are, nothing changes
                ways, places = _one_of(ways, places, late)
            kinds.append(Kind(kind_of.count(kind), ways, late))
            labels.append(places)
        needed = frozenset(at for at, room in enumerate(devices.rooms) if room.device.is_accelerator)
        least = self._least_hand_overs(devices) if shares == WORKING else 0.0
        puzzle = Puzzle(tuple(kinds), rooms, needed, least)
        look = _Look(self, devices, puzzle, tuple(kind_of), tuple(labels), shares=shares)
        return look.without_disk() if look.needs_no_disk() else look

    def _room(self, devices: DeviceSet, at: int) -> int:
        room = devices.rooms[at]
        place = room.device.id
        if room.capacity is None:
            return UNBOUNDED
        if place in (devices.main, *(each.device.id for each in devices.accelerators)):
            return room.capacity - (self.work[place].most if place != DISK else 0)
        return room.capacity - (self.beside if place == CPU and devices.stays is Stays.EXPERTS else 0)

    def _least_hand_overs(self, devices: DeviceSet) -> float:
        """Each running device after the first is reached at least once, unless a tower is all that it holds. Where the
        CPU could run layers but does not, the set without it says the same."""
        names = [room.device.id for room in devices.accelerators] + [CPU] * devices.shares_work
        pairs = [self.hand_over(a, b) for a in names for b in names if a != b]
        return max(0, len(names) - 1 - self._unvisited) * min(pairs, default=0.0)

    def hand_over(self, source: str, target: str) -> float:
        """Cost of handing hidden states over, in the whole workload."""
        known = self._hand_overs.get((source, target))
        if known is None:
            known = self._hand_overs[source, target] = self._hand_over_cost(source, target)
        return known

    def keep(self, cost: float, places: tuple[tuple[str, ...], ...], devices: DeviceSet) -> None:
        if cost < self.search.ceiling:
            self._places, self._devices = places, devices

    def relaxed(self, cost: float) -> None:
        """Some answer's cost with the fewest hand-overs there can be: how low the optimum might be."""
        self._least = min(self._least, cost)


def _one_of(
    ways: tuple[Way, ...], labels: tuple[tuple[str, ...], ...], late: bool
) -> tuple[tuple[Way, ...], tuple[tuple[str, ...], ...]]:
    """The way that is taken of those that cost the same."""
    best = min(range(len(ways)), key=lambda at: (ways[at].cost, -ways[at].runs if late else 0, at))
    return (ways[best],), (labels[best],)


class _Look:
    """A set of devices, looked at more and more closely: a rough bound, a sharp one, then room for what is carried."""

    def __init__(
        self,
        choosing: Choosing,
        devices: DeviceSet,
        puzzle: Puzzle,
        kind_of: tuple[int, ...],
        labels: tuple[tuple[tuple[str, ...], ...], ...],
        tolls: tuple[float, ...] = (),
        stage: int = 0,
        shares: Shares = WORKING,
    ) -> None:
        self.choosing, self.devices, self.puzzle, self.kind_of, self.labels = choosing, devices, puzzle, kind_of, labels
        self.tolls = tolls or (0.0,) * len(puzzle.rooms)
        self.stage, self.shares = stage, shares
        self._floor = bound(puzzle, self.tolls)

    @property
    def is_closest(self) -> bool:
        return self.stage == 3

    def floor(self) -> float:
        """A cost that no answer undercuts."""
        return self._floor

    def closer(self) -> list[_Look]:
        match self.stage:
            case 0:
                sharp = self._sharp()
                if sharp and sharp[0].floor() < self.choosing.search.ceiling and self._may_wait_for_reads():
                    other = self.choosing.first_look(self.devices, WAITING)
                    sharp += [] if other is None else other._sharp()
                return [max(sharp, key=_Look.floor)] if sharp else []
            case 2:
                return self._sharp()
            case 1:
                each = ((transient, self.puzzle.at(transient)) for transient in self.puzzle.transients())
                return [self._at(transient, puzzle) for transient, puzzle in each if puzzle is not None]
            case _:
                return []

    def _sharp(self) -> list[_Look]:
        tolls = tolls_of(self.puzzle)
        return [] if tolls is None else [self._with(self.puzzle, self.labels, tolls)]

    def _may_wait_for_reads(self) -> bool:
        """Whether beside accelerators layers have to be read ahead, which may take longer than all work."""
        return self.devices.shares_work and self.devices.rooms[-1].device.id == DISK and self.spare() < 0

    def spare(self) -> int:
        """Bytes that accelerators and RAM would have left with everything in them."""
        disk = {at for at, room in enumerate(self.devices.rooms) if room.device.id == DISK}
        room = sum(each for at, each in enumerate(self.puzzle.rooms) if at not in disk)
        return room - sum(kind.count * min(sum(way.uses) for way in kind.ways) for kind in self.puzzle.kinds)

    def without_disk(self) -> _Look:
        """The same set with nothing on disk."""
        kept = [[at for at, label in enumerate(labels) if DISK not in label] for labels in self.labels]
        kinds = tuple(
            Kind(kind.count, tuple(kind.ways[at] for at in each), kind.late)
            for kind, each in zip(self.puzzle.kinds, kept, strict=True)
        )
        labels = tuple(tuple(each[at] for at in ats) for each, ats in zip(self.labels, kept, strict=True))
        puzzle = Puzzle(kinds, self.puzzle.rooms, self.puzzle.needed, self.puzzle.least_extra)
        return _Look(self.choosing, self.devices, puzzle, self.kind_of, labels)

    def needs_no_disk(self) -> bool:
        """Whether the CPU runs layers beside accelerators that are no slower, and RAM has room for all that these have
        none for: then what rests on disk may as well rest in RAM."""
        if not self.devices.shares_work or len(self.kind_of) <= FEW:
            return False
        if any(all(DISK in label for label in labels) for labels in self.labels):
            return False
        largest = max(max(sum(way.uses) for way in kind.ways) for kind in self.puzzle.kinds)
        return self.spare() >= len(self.devices.accelerators) * largest and all(
            min((way.cost for way in kind.ways if way.runs), default=inf) <= min(way.cost for way in kind.ways)
            for kind in self.puzzle.kinds
        )

    def judge(self, counts: Counts, cost: float) -> float:
        names = [room.device.id for room in self.devices.rooms]
        hand_over = self.choosing.hand_over
        row = Row(self.puzzle, self.kind_of, self.choosing.line, counts, lambda a, b: hand_over(names[a], names[b]))
        if self.devices.running > 1:
            row.settle()
            other = row.cut_anew() if row.cost() > cost * (1 + 1e-9) else None
            if other is not None:
                other.settle()
                row = min(row, other, key=Row.cost)
            if len(self.kind_of) > FEW:
                self.choosing.relaxed(cost)
        places = tuple(self.labels[kind][index] for kind, index in zip(self.kind_of, row.chosen, strict=True))
        real = row.cost()
        if self.devices.main == CPU and (self.shares != WORKING or self._reads_ahead(places)):
            real = self.choosing.real(tuple(place for each in places for place in each), self.devices)
        self.choosing.keep(real, places, self.devices)
        return real

    def _reads_ahead(self, places: tuple[tuple[str, ...], ...]) -> bool:
        return not self.devices.accelerators or any(DISK in each for each in places)

    def _with(self, puzzle: Puzzle, labels: tuple[tuple[tuple[str, ...], ...], ...], tolls: tuple[float, ...]) -> _Look:
        return _Look(self.choosing, self.devices, puzzle, self.kind_of, labels, tolls, self.stage + 1, self.shares)

    def _at(self, transient: int, puzzle: Puzzle) -> _Look:
        labels = tuple(
            tuple(label for label, way in zip(each, kind.ways, strict=True) if way.transient <= transient)
            for each, kind in zip(self.labels, self.puzzle.kinds, strict=True)
        )
        return self._with(puzzle, labels, self.tolls)
