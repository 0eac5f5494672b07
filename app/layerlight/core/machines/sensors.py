"""What the system tells of a machine at work: the processor's load, swap, and who holds most of the RAM."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Holder:
    """A program and the bytes it holds on a place."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Readings:
    """None is what can't be read here."""

    load: float | None = None
    """The part of all processors' time that was used since the reading before."""
    swap: int | None = None
    """Bytes that were moved out of RAM and are not back."""
    largest: Holder | None = None
    """Of other programs the one that holds most of the RAM, where it was asked for."""


def read_sensors(largest: bool = False) -> Readings:
    """Never raises. `largest` looks at every process, which takes some 20 ms."""
    return Readings(_load(), _swap(), largest_program() if largest else None)


def largest_program() -> Holder | None:
    """By what is resident; neither this process nor one that it started."""
    own = own_processes()
    try:
        found = [each.info for each in psutil.process_iter(["pid", "name", "memory_info"])]
    except (psutil.Error, OSError):
        return None
    others = [
        Holder(str(each["name"]), int(each["memory_info"].rss))
        for each in found
        if each["pid"] not in own and each["name"] and each["memory_info"] is not None
    ]
    return max(others, key=lambda holder: holder.size, default=None)


def own_processes() -> set[int]:
    """Numbers of this process and of those that it started."""
    try:
        return {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    except (psutil.Error, OSError):
        return {os.getpid()}


def _load() -> float | None:
    """psutil counts from the call before, and says 0.0 at the first."""
    try:
        percent = psutil.cpu_percent(interval=None)
    except (OSError, RuntimeError, ValueError):
        return None
    return percent / 100 if 0 < percent <= 100 else None


def _swap() -> int | None:
    """psutil warns, which may be an error, where the system keeps no count of pages."""
    try:
        used = psutil.swap_memory().used
    except (OSError, RuntimeError, ValueError, RuntimeWarning):
        return None
    return used if used >= 0 else None
