"""Who stands where in the pass: counts of alike items become places in the model's order, with few hand-overs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from layerlight.core.optimum import Counts
from layerlight.core.puzzle import Puzzle, Way

HandOver = Callable[[int, int], float]
"""(index of a place, of the next) → what handing hidden states over costs in the whole workload."""


class Row:
    """An answer item by item: `chosen[i]` is the index of item i's way in its kind.

    `kind_of[i]` is the kind of item i; `steps` are the items in the order they run, where one may run twice, as a tied
    embedding and head do.
    """

    def __init__(
        self, puzzle: Puzzle, kind_of: Sequence[int], steps: Sequence[int], counts: Counts, hand_over: HandOver
    ) -> None:
        self.puzzle, self.kind_of, self.steps, self.hand_over = puzzle, kind_of, steps, hand_over
        self.chosen = self._in_order(counts)

    def _in_order(self, counts: Counts) -> list[int]:
        """Alike items in blocks: first what runs on the main place, then on the next, so that each is visited once."""
        queues = []
        for kind, many in zip(self.puzzle.kinds, counts, strict=True):
            order = sorted(range(len(many)), key=lambda index: (kind.ways[index].runs, index))
            queues.append([index for index in reversed(order) for _ in range(many[index])])
        return [queues[kind].pop() for kind in self.kind_of]

    def way(self, item: int, index: int | None = None) -> Way:
        return self.puzzle.kinds[self.kind_of[item]].ways[self.chosen[item] if index is None else index]

    def hand_overs(self) -> float:
        """What all hand-overs of the workload cost."""
        runs = [self.way(item).runs for item in self.steps]
        return sum(self.hand_over(a, b) for a, b in pairwise(runs) if a != b)

    def settle(self) -> None:
        """Moves single items to where their neighbours run, while there is room and that is cheaper."""
        room = list(self.puzzle.rooms)
        keeps = dict.fromkeys(self.puzzle.needed, 0)
        for item in range(len(self.chosen)):
            self._take(room, keeps, self.way(item), 1)
        improved = True
        while improved:
            moved = [item for item in self._at_borders() if self._settle_item(item, room, keeps)]
            improved = bool(moved)

    def _take(self, room: list[int], keeps: dict[int, int], way: Way, times: int) -> None:
        for place, used in enumerate(way.uses):
            room[place] -= times * used
        for place in way.rests:
            if place in keeps:
                keeps[place] += times

    def _at_borders(self) -> list[int]:
        runs = [self.way(item).runs for item in self.steps]
        borders = [at for at in range(len(runs) - 1) if runs[at] != runs[at + 1]]
        return list(dict.fromkeys(self.steps[each] for at in borders for each in (at, at + 1)))

    def _settle_item(self, item: int, room: list[int], keeps: dict[int, int]) -> bool:
        own = self.way(item)
        self._take(room, keeps, own, -1)
        before = own.cost + self._around(item, own.runs)
        best, least = self.chosen[item], before - 1e-9 * abs(before)
        for index, way in enumerate(self.puzzle.kinds[self.kind_of[item]].ways):
            if index == self.chosen[item] or any(used > left for used, left in zip(way.uses, room, strict=True)):
                continue
            if any(not kept and place not in way.rests for place, kept in keeps.items()):
                continue
            cost = way.cost + self._around(item, way.runs)
            if cost < least:
                best, least = index, cost
        moved = best != self.chosen[item]
        self.chosen[item] = best
        self._take(room, keeps, self.way(item), 1)
        return moved

    def _around(self, item: int, runs: int) -> float:
        """Hand-overs to and from an item that runs there."""
        total = 0.0
        for at, step in enumerate(self.steps):
            if step != item:
                continue
            for other in (at - 1, at + 1):
                if 0 <= other < len(self.steps) and self.steps[other] != item:
                    neighbour = self.way(self.steps[other]).runs
                    total += self.hand_over(neighbour, runs) if other < at else self.hand_over(runs, neighbour)
        return total

    def cost(self) -> float:
        """What the answer really costs, hand-overs included."""
        return sum(self.way(item).cost for item in range(len(self.chosen))) + self.hand_overs()
