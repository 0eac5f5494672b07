"""Weights that are missing, misshapen or unknown, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layerlight.core.errors import BrokenModel

Misshapen = tuple[str, Sequence[int], Sequence[int]]
"""(parameter, shape in the file, shape in the model)."""


def require_fitting(
    name: str, *, missing: Iterable[str] = (), misshapen: Iterable[Misshapen] = (), unexpected: Iterable[str] = ()
) -> None:
    """Raises BrokenModel when there are any: a layer must never be silently random."""
    parts = []
    if absent := sorted(missing):
        parts.append(f"{_some(absent)} {'is' if len(absent) == 1 else 'are'} missing")
    if odd := sorted(misshapen):
        shapes = [f"{key} ({_shape(found)} in the file, {_shape(wanted)} in the model)" for key, found, wanted in odd]
        parts.append(f"{_some(shapes)} {'has' if len(odd) == 1 else 'have'} the wrong shape")
    if extra := sorted(unexpected):
        parts.append(f"{_some(extra)} {'is' if len(extra) == 1 else 'are'} not part of the model")
    if parts:
        raise BrokenModel(
            f"The weight files of {name} do not match its config.json: {'; '.join(parts)}.",
            hint="Download the model again, or check that config.json belongs to these weights.",
        )


def _shape(lengths: Sequence[int]) -> str:
    return "×".join(map(str, lengths)) or "scalar"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
