"""The puzzle with items that may be cut: a linear programme, whose prices per byte steer the search."""

from __future__ import annotations

from layerlight.core.planning.puzzle import UNBOUNDED, Puzzle

_MOST_PIVOTS = 200
_TINY = 1e-10


def tolls_of(puzzle: Puzzle) -> tuple[float, ...] | None:
    """The cost of a byte on each place once items may be cut; None when even then they do not fit.

    The dual simplex method from the start where every item is kept in its cheapest way: that costs the least and only
    lacks room. Places without a bound, and those never short, have no toll.
    """
    tight = [place for place, room in enumerate(puzzle.rooms) if room < UNBOUNDED]
    most = max((abs(way.cost) for kind in puzzle.kinds for way in kind.ways), default=0.0) or 1.0
    scales = {place: float(max(1, puzzle.rooms[place])) for place in tight}
    rows, reduced = _first_tableau(puzzle, tight, scales, most)
    for _ in range(_MOST_PIVOTS):
        worst = min(range(len(rows)), key=lambda row: rows[row][-1], default=-1)
        if worst < 0 or rows[worst][-1] >= -_TINY:
            break
        column = _entering(rows[worst], reduced)
        if column < 0:
            return None
        _pivot(rows, reduced, worst, column)
    prices = {place: max(0.0, reduced[-1 - len(tight) + at]) for at, place in enumerate(tight)}
    return tuple(prices[place] * most / scales[place] if place in prices else 0.0 for place in range(len(puzzle.rooms)))


def _first_tableau(
    puzzle: Puzzle, tight: list[int], scales: dict[int, float], most: float
) -> tuple[list[list[float]], list[float]]:
    """(rows, reduced costs): columns are ways, then the room left on each tight place, then the right side."""
    columns = [way for kind in puzzle.kinds for way in kind.ways]
    width = len(columns) + len(tight) + 1
    kinds: list[list[float]] = []
    cheapest = []
    start = 0
    reduced: list[float] = []
    for kind in puzzle.kinds:
        row = [0.0] * width
        row[start : start + len(kind.ways)] = [1.0] * len(kind.ways)
        row[-1] = float(kind.count)
        best = min(kind.ways, key=lambda way: way.cost)
        reduced += [(way.cost - best.cost) / most for way in kind.ways]
        cheapest.append(best)
        kinds.append(row)
        start += len(kind.ways)
    reduced += [0.0] * (len(tight) + 1)
    places = []
    for at, place in enumerate(tight):
        scale = scales[place]
        row = [
            (way.uses[place] - best.uses[place]) / scale
            for kind, best in zip(puzzle.kinds, cheapest, strict=True)
            for way in kind.ways
        ]
        row += [1.0 if other == at else 0.0 for other in range(len(tight))]
        taken = sum(kind.count * best.uses[place] for kind, best in zip(puzzle.kinds, cheapest, strict=True))
        row.append((puzzle.rooms[place] - taken) / scale)
        places.append(row)
    return [*places, *kinds], reduced


def _entering(row: list[float], reduced: list[float]) -> int:
    """The column whose reduced cost stays at 0 or above when it enters for this row; -1 when there is none."""
    best, ratio = -1, 0.0
    for column, coefficient in enumerate(row[:-1]):
        if coefficient < -_TINY:
            own = reduced[column] / -coefficient
            if best < 0 or own < ratio:
                best, ratio = column, own
    return best


def _pivot(rows: list[list[float]], reduced: list[float], at: int, column: int) -> None:
    divisor = rows[at][column]
    pivot = rows[at] = [each / divisor for each in rows[at]]
    for index, row in enumerate(rows):
        factor = row[column]
        if index != at and factor:
            rows[index] = [each - factor * other for each, other in zip(row, pivot, strict=True)]
    factor = reduced[column]
    if factor:
        reduced[:] = [each - factor * other for each, other in zip(reduced, pivot, strict=True)]
