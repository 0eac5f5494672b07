"""What a part of a benchmark found, and the bound it misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence for people; `missed` is empty where the bound holds."""

    words: str
    missed: str = ""


def at_least(name: str, ratios: Sequence[float], bound: float, of: str) -> Finding:
    """The middle of the ratios is held to a lower bound. `of`: what they are parts of."""
    middle = median(ratios)
    return Finding(f"{name}: {spread(ratios)} {of}.", f"{name}: {middle:.2f} {of} < {bound}" if middle < bound else "")


def at_most(name: str, ratios: Sequence[float], bound: float, of: str) -> Finding:
    """The same with an upper bound."""
    middle = median(ratios)
    return Finding(f"{name}: {spread(ratios)} {of}.", f"{name}: {middle:.2f} {of} > {bound}" if middle > bound else "")


def spread(ratios: Sequence[float]) -> str:
    """The middle, and in brackets from the smallest to the largest."""
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
