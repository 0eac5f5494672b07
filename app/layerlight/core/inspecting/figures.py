"""Whole numbers of a config, as far as they can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST_FIGURE = 2**40
"""More than any model has: a config that says more is damaged, and is not believed."""


def first_figure(mapping: Mapping[str, Any], names: tuple[str, ...], default: int | None) -> int | None:
    """The first of these entries that is a believable whole number of zero or more."""
    for name in names:
        value = mapping.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_FIGURE:
            return value
    return default
