"""Work timed by two clocks: the wall's, and the processor's own, which others that compute at the same time leave
alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds. `processor` is the sum over all threads of this process."""

    wall: float
    processor: float


@dataclass(frozen=True, slots=True)
class TimedPair:
    """The same work, ours and theirs, one after the other. `quiet`: nothing else was computing meanwhile."""

    ours: Took
    theirs: Took
    quiet: bool


def timed(work: Callable[[], Result]) -> tuple[Took, Result]:
    """How long it took, and what came of it."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return Took(time.perf_counter() - wall, time.process_time() - processor), result


def speeds(pairs: Sequence[TimedPair]) -> list[float]:
    """Our speed as a part of theirs, pair by pair: by the wall's clock if all were quiet, else by the processor's."""
    if all(pair.quiet for pair in pairs):
        return [pair.theirs.wall / pair.ours.wall for pair in pairs]
    return [pair.theirs.processor / pair.ours.processor for pair in pairs]


def clock_of(pairs: Sequence[TimedPair]) -> str:
    """Which clock `speeds` took, in words."""
    if all(pair.quiet for pair in pairs):
        return "by the wall's clock, on a quiet machine"
    return "in processor seconds, as the machine was shared"


def line(number: int, pair: TimedPair) -> str:
    """One pair, for people."""
    ours, theirs = pair.ours, pair.theirs
    return (
        f"  {number + 1}: {1000 * ours.wall:.0f} ms, theirs {1000 * theirs.wall:.0f} ms; of a processor "
        f"{1000 * ours.processor:.0f} and {1000 * theirs.processor:.0f} ms"
    )
