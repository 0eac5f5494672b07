"""Pressure: what other programs took of a place since the machine was looked at, and swap that has grown, in words."""

from __future__ import annotations

from layerlight.core.device import CPU, format_size
from layerlight.core.machines.sensors import Holder
from layerlight.core.messages import PlaceMemory

LEAST_PART, LEAST = 0.03, 2**30
"""What is taken matters from the smaller of the two on: a part of the place, and bytes."""
SWAPPED = 2**28
"""Bytes of swap that are worth a word when they have been added."""


def ours(memory: PlaceMemory) -> int:
    """Bytes of a place that the engine holds; of RAM those that can only be freed, not read from a file again."""
    held = memory.anonymous if memory.place == CPU else memory.process
    return held if held is not None else memory.model


def others(memory: PlaceMemory, ours: int) -> int | None:
    """Bytes of a place that other programs hold beside ours; None where that can't be read."""
    if memory.total is None or memory.free is None:
        return None
    return max(0, memory.total - memory.free - ours)


def taken(before: int, now: int, total: int) -> int:
    """Bytes that other programs have taken, from what they held before and hold now; 0 when too few to matter."""
    grown = now - before
    return grown if grown >= min(LEAST, LEAST_PART * total) else 0


def taken_words(size: int, title: str, holder: Holder | None = None) -> str:
    """Empty for nothing. `holder` is the program that holds most there, where that is known."""
    if not size:
        return ""
    most = f" {holder.name} holds {format_size(holder.size)}." if holder is not None else ""
    return f"Other programs took {format_size(size)} of {title} since this machine was looked at.{most}"


def swap_words(before: int | None, now: int | None) -> str:
    """Empty while swap has not grown by an amount that matters."""
    if before is None or now is None or now - before < SWAPPED:
        return ""
    return f"Swap has grown by {format_size(now - before)}: RAM is short, and reading back from the disk is slow."
