"""The cheapest answer to a puzzle: branch and bound over how many items of a kind are kept in which way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from layerlight.core.planning.puzzle import Kind, Puzzle, Way, bound, toll

Counts = tuple[tuple[int, ...], ...]
"""For each kind, how many of its items are kept in each of its ways."""

Judge = Callable[[Counts, float], float]
"""(counts, what the puzzle says they cost) → what they really cost, which is never less."""


class Search:
    """Searches puzzles one after another for answers cheaper than the best so far.

    `nodes` bounds the work: while some are left, what was searched was searched completely.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.best = self.ceiling = inf

    def lower(self, cost: float) -> None:
        """Takes an answer's cost for the best when it is; `ceiling` is what a better one must stay below."""
        if cost < self.best:
            self.best = cost
            self.ceiling = cost - 1e-9 * abs(cost)

    def improve(self, puzzle: Puzzle, tolls: Sequence[float], judge: Judge, every: bool = True) -> None:
        """Tells `judge` answers that may be cheaper than `best`, which it lowers: every one of them, or only those that
        cost less than the last by the puzzle's own account, where many answers differ in what `judge` adds alone."""
        _Descent(self, puzzle, tolls, judge, every).run()


class _Descent:
    """One puzzle's search. Kinds are settled one after another, each way by way, cheapest first."""

    def __init__(self, search: Search, puzzle: Puzzle, tolls: Sequence[float], judge: Judge, every: bool) -> None:
        self.search, self.puzzle, self.judge, self.every = search, puzzle, judge, every
        self.least = inf
        self.places = range(len(puzzle.rooms))
        self.tolled = tuple((place, each) for place, each in enumerate(tolls) if each > 0)
        self.floor = bound(puzzle, tolls)
        self.order = sorted(range(len(puzzle.kinds)), key=lambda index: -_largest(puzzle, index))
        self.ways = [_by_toll(puzzle.kinds[index], tolls) for index in self.order]
        self.room = list(puzzle.rooms)
        self.chosen: list[list[int]] = [[0] * len(kind.ways) for kind in puzzle.kinds]
        self.later = self._later()
        self.tails = [self._tails(ways) for ways in self.ways]

    def run(self) -> None:
        if self.floor < self.search.ceiling and self.order:
            self._settle(0, 0, self.puzzle.kinds[self.order[0]].count, self.floor)

    def _later(self) -> list[tuple[list[int], list[int]]]:
        """For each kind the least and the most that the kinds after it take of each place."""
        least, most = [0] * len(self.room), [0] * len(self.room)
        found = []
        for position in reversed(range(len(self.order))):
            found.append((least, most))
            count = self.puzzle.kinds[self.order[position]].count
            ways = [way for _, _, way in self.ways[position]]
            least = [least[at] + count * min(way.uses[at] for way in ways) for at in self.places]
            most = [most[at] + count * max(way.uses[at] for way in ways) for at in self.places]
        return found[::-1]

    def _tails(self, ways: list[tuple[float, int, Way]]) -> list[tuple[list[int], list[int]]]:
        """For each way the least and the most that one item takes in the ways after it."""
        found = []
        for position in range(len(ways)):
            after = [way for _, _, way in ways[position + 1 :]]
            least = [min((way.uses[at] for way in after), default=0) for at in self.places]
            most = [max((way.uses[at] for way in after), default=0) for at in self.places]
            found.append((least, most))
        return found

    def _settle(self, position: int, at: int, left: int, cost: float) -> None:
        """Tries every number of items of kind `position` for way `at`; `left` items have none yet."""
        ways = self.ways[position]
        surplus, index, way = ways[at]
        last = at == len(ways) - 1
        next_surplus = 0.0 if last else ways[at + 1][0]
        counts = self.chosen[self.order[position]]
        least_later, most_later = self.later[position]
        least_tail, most_tail = self.tails[position][at]
        for count in range(self._most(way, left, least_later, least_tail), (left if last else 0) - 1, -1):
            self.search.nodes -= 1
            if self.search.nodes < 0:
                return
            rest = left - count
            total = cost + surplus * count
            ceiling = min(self.search.ceiling, self.least)
            if total + next_surplus * rest >= ceiling:
                return  # fewer here are dearer still: the ways that follow cost no less
            for place in self.places:
                self.room[place] -= way.uses[place] * count
            counts[index] = count
            unused = growing = 0.0
            for place, each in self.tolled:
                idle = self.room[place] - most_later[place] - rest * most_tail[place]
                if idle > 0:
                    unused += each * idle
                    if way.uses[place] >= most_tail[place]:
                        growing += each * idle
            total_least = total + next_surplus * rest
            if total_least + unused < ceiling:
                if rest:
                    self._settle(position, at + 1, rest, total)
                else:
                    self._next(position, total)
            counts[index] = 0
            for place in self.places:
                self.room[place] += way.uses[place] * count
            if total_least + growing >= ceiling:
                return  # fewer here leave even more of these places unused

    def _most(self, way: Way, left: int, later: list[int], tail: list[int]) -> int:
        """How many items can be kept this way, so that what remains may still find room."""
        most = left
        for place in self.places:
            spare = self.room[place] - later[place] - left * tail[place]
            step = way.uses[place] - tail[place]
            if step > 0:
                most = min(most, spare // step)
            elif spare - left * step < 0:
                return -1
        return most

    def _next(self, position: int, cost: float) -> None:
        if position + 1 < len(self.order):
            self._settle(position + 1, 0, self.puzzle.kinds[self.order[position + 1]].count, cost)
            return
        if self._keeps_all_needed():
            counts = tuple(tuple(each) for each in self.chosen)
            self.search.nodes -= 1 + sum(kind.count for kind in self.puzzle.kinds) // 8  # as long as so many steps
            cost = self._cost()
            self.search.lower(self.judge(counts, cost))
            if not self.every:
                self.least = cost - 1e-9 * abs(cost)

    def _cost(self) -> float:
        return self.puzzle.least_extra + sum(
            way.cost * count
            for kind, counts in zip(self.puzzle.kinds, self.chosen, strict=True)
            for way, count in zip(kind.ways, counts, strict=True)
        )

    def _keeps_all_needed(self) -> bool:
        kept = {
            place
            for kind, counts in zip(self.puzzle.kinds, self.chosen, strict=True)
            for way, count in zip(kind.ways, counts, strict=True)
            if count
            for place in way.rests
        }
        return self.puzzle.needed <= kept


def _by_toll(kind: Kind, tolls: Sequence[float]) -> list[tuple[float, int, Way]]:
    """(what it costs above the cheapest, index, way), cheapest first."""
    priced = [(toll(way, tolls), index, way) for index, way in enumerate(kind.ways)]
    least = min(cost for cost, _, _ in priced)
    scale = 1e-12 * max(abs(cost) for cost, _, _ in priced)
    surplus = [(cost - least if cost - least > scale else 0.0, index, way) for cost, index, way in priced]
    return sorted(surplus, key=lambda each: (each[0], -each[2].runs if kind.late else 0, each[1]))


def _largest(puzzle: Puzzle, index: int) -> int:
    return max(sum(way.uses) for way in puzzle.kinds[index].ways)
