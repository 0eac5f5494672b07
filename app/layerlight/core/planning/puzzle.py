"""The puzzle behind a plan: items of a few kinds, ways to keep each, and places that hold so many bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNBOUNDED = 2**62
"""The room of a place whose bound nobody knows, in bytes."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep an item: what it costs, and the bytes that it takes of each place."""

    cost: float
    uses: tuple[int, ...]
    transient: int
    """Bytes that it needs on the first place for a moment: the largest one in use counts, not their sum."""
    rests: tuple[int, ...]
    """Indices of the places it rests on."""
    runs: int
    """Index of the place it runs on."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Items that are alike: so many of them, each kept in one of these ways.

    Of ways that cost the same the first is taken, or for items that run `late` the one on the last device.
    """

    count: int
    ways: tuple[Way, ...]
    late: bool = False


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Items to be kept at the least cost, `least_extra` coming on top of any answer.

    The first place is the main one, which runs what rests elsewhere. Every place in `needed` must keep an item.
    """

    kinds: tuple[Kind, ...]
    rooms: tuple[int, ...]
    needed: frozenset[int]
    least_extra: float = 0.0

    def transients(self) -> tuple[int, ...]:
        """Bytes that may have to be there for carried items, ascending."""
        return tuple(sorted({way.transient for kind in self.kinds for way in kind.ways}))

    def at(self, transient: int) -> Puzzle | None:
        """With place for so much and nothing carried that needs more; None when a kind has no way left."""
        kinds = tuple(
            Kind(kind.count, tuple(way for way in kind.ways if way.transient <= transient), kind.late)
            for kind in self.kinds
        )
        if any(not kind.ways for kind in kinds) or (self.rooms and transient > self.rooms[0]):
            return None
        rooms = (self.rooms[0] - transient, *self.rooms[1:]) if self.rooms else ()
        return Puzzle(kinds, rooms, self.needed, self.least_extra)


def bound(puzzle: Puzzle, tolls: Sequence[float]) -> float:
    """A cost that no answer undercuts, for any tolls (cost per byte of each place, none below 0)."""
    kept = sum(kind.count * min(toll(way, tolls) for way in kind.ways) for kind in puzzle.kinds)
    paid = sum(each * room for each, room in zip(tolls, puzzle.rooms, strict=True) if each)
    return kept - paid + puzzle.least_extra


def toll(way: Way, tolls: Sequence[float]) -> float:
    """Cost of a way with the tolls for its bytes."""
    return way.cost + sum(each * used for each, used in zip(tolls, way.uses, strict=True))
