"""Who stands where in the pass: counts of alike items become places in the model's order, with few hand-overs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from layerlight.core.planning.optimum import Counts
from layerlight.core.planning.puzzle import Puzzle, Way

HandOverCost = Callable[[int, int], float]
"""(index of a place, of the next) → what handing hidden states over costs in the whole workload."""


class Line:
    """The order in which items run. An item may run twice, as a tied embedding and head do."""

    def __init__(self, steps: Sequence[int], items: int) -> None:
        """`steps` are numbers of items."""
        self.steps = steps
        self.neighbours: list[list[tuple[int, bool]]] = [[] for _ in range(items)]
        """For each item those that run just before it and after it, with whether they run before."""
        for before, after in pairwise(steps):
            if before != after:
                self.neighbours[after].append((before, True))
                self.neighbours[before].append((after, False))


class Row:
    """An answer item by item: `chosen[i]` is the index of item i's way in its kind, `kind_of[i]`."""

    def __init__(
        self,
        puzzle: Puzzle,
        kind_of: Sequence[int],
        line: Line,
        counts: Counts,
        hand_over: HandOverCost,
        chosen: list[int] | None = None,
    ) -> None:
        """`chosen` in place of an order worked out from the counts."""
        self.puzzle, self.kind_of, self.line, self.hand_over = puzzle, kind_of, line, hand_over
        self.chosen = self._in_order(counts) if chosen is None else chosen
        if chosen is not None:
            counts = self._counted(chosen)
        self._ways = [puzzle.kinds[kind].ways[index] for kind, index in zip(kind_of, self.chosen, strict=True)]
        self._room, self._keeps = list(puzzle.rooms), dict.fromkeys(puzzle.needed, 0)
        self._cost = 0.0
        for kind, many in zip(puzzle.kinds, counts, strict=True):
            for way, count in zip(kind.ways, many, strict=True):
                self._take(way, count)

    def _in_order(self, counts: Counts) -> list[int]:
        """Alike items in blocks: first what runs on the main place, then on the next, so that each is visited once."""
        queues = []
        for kind, many in zip(self.puzzle.kinds, counts, strict=True):
            order = sorted(range(len(many)), key=lambda index: (kind.ways[index].runs, index))
            queues.append([index for index in reversed(order) for _ in range(many[index])])
        return [queues[kind].pop() for kind in self.kind_of]

    def _counted(self, chosen: list[int]) -> Counts:
        counts = [[0] * len(kind.ways) for kind in self.puzzle.kinds]
        for kind, index in zip(self.kind_of, chosen, strict=True):
            counts[kind][index] += 1
        return tuple(tuple(each) for each in counts)

    def cut_anew(self) -> Row | None:
        """The same items carried, the others in one block a device, each filled before the next; None where that does
        not fit. Alike items in blocks are several blocks a device where items of different kinds take turns.

        A main place that need not keep anything, RAM beside accelerators, comes first in the pass and is filled last.
        """
        room = list(self.puzzle.rooms)
        chosen = list(self.chosen)
        staying = []
        for item in dict.fromkeys((*self.line.steps, *range(len(chosen)))):
            way = self._ways[item]
            if self.line.neighbours[item] and way.rests == (way.runs,):
                staying.append(item)
            else:
                room = [left - used for left, used in zip(room, way.uses, strict=True)]
        order = sorted(self.puzzle.needed)
        if 0 not in self.puzzle.needed:
            staying, order = staying[::-1], [*order[::-1], 0]
        turn = 0
        for item in staying:
            ways = self.puzzle.kinds[self.kind_of[item]].ways
            there = {way.runs: index for index, way in enumerate(ways) if way.rests == (way.runs,)}
            while (way_there := there.get(order[turn])) is None or any(
                used > left for used, left in zip(ways[way_there].uses, room, strict=True)
            ):
                turn += 1
                if turn >= len(order):
                    return None
            chosen[item] = way_there
            room = [left - used for left, used in zip(room, ways[way_there].uses, strict=True)]
        row = Row(self.puzzle, self.kind_of, self.line, (), self.hand_over, chosen)
        return row if all(row._keeps.values()) else None

    def cost(self) -> float:
        """What the answer really costs, hand-overs included."""
        runs = [self._ways[item].runs for item in self.line.steps]
        crossing = sum(self.hand_over(before, after) for before, after in pairwise(runs) if before != after)
        return self._cost + crossing

    def settle(self) -> None:
        """Moves single items to where their neighbours run, while there is room and that is cheaper."""
        moved = self._at_borders()
        while moved:
            moved = [item for item in self._at_borders() if self._settle_item(item)]

    def _at_borders(self) -> list[int]:
        ways = self._ways
        borders = (pair for pair in pairwise(self.line.steps) if ways[pair[0]].runs != ways[pair[1]].runs)
        return list(dict.fromkeys(item for pair in borders for item in pair))

    def _settle_item(self, item: int) -> bool:
        own = self._ways[item]
        self._take(own, -1)
        before = own.cost + self._around(item, own.runs)
        best, least = self.chosen[item], before - 1e-9 * abs(before)
        nearby = {self._ways[other].runs for other, _ in self.line.neighbours[item]}
        for index, way in enumerate(self.puzzle.kinds[self.kind_of[item]].ways):
            if way.runs == own.runs or way.runs not in nearby:
                continue
            if any(used > left for used, left in zip(way.uses, self._room, strict=True)):
                continue
            if any(not kept and place not in way.rests for place, kept in self._keeps.items()):
                continue
            cost = way.cost + self._around(item, way.runs)
            if cost < least:
                best, least = index, cost
        moved = best != self.chosen[item]
        self.chosen[item] = best
        self._ways[item] = self.puzzle.kinds[self.kind_of[item]].ways[best]
        self._take(self._ways[item], 1)
        return moved

    def _around(self, item: int, runs: int) -> float:
        """Hand-overs to and from an item that runs there."""
        total = 0.0
        for other, before in self.line.neighbours[item]:
            neighbour = self._ways[other].runs
            if neighbour != runs:
                total += self.hand_over(neighbour, runs) if before else self.hand_over(runs, neighbour)
        return total

    def _take(self, way: Way, times: int) -> None:
        if not times:
            return
        self._cost += times * way.cost
        for place, used in enumerate(way.uses):
            self._room[place] -= times * used
        for place in way.rests:
            if place in self._keeps:
                self._keeps[place] += times
