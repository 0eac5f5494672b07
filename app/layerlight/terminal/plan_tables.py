"""Tables of plans in plain columns, and as `--json` writes them: strategies beside each other, models on machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from layerlight.core.device import format_size
from layerlight.core.plan import Plan
from layerlight.core.plan_table import Cell
from layerlight.terminal.tables import columns


def of_cell(cell: Cell) -> dict[str, Any]:
    """Bytes are those at the peak, by place."""
    return {
        "model": cell.model,
        "machine": cell.machine,
        "verdict": cell.verdict.value,
        "words": cell.words,
        "bytes": dict(cell.places),
        "seconds_per_token": cell.seconds_per_token,
        "shortfall": cell.shortfall,
    }


def plain(cells: Sequence[Cell]) -> str:
    """A line for each cell."""
    rows = [("model", "machine", "verdict", "s/token", "bytes")]
    rows += [(cell.model, cell.machine, cell.verdict.value, seconds(cell), bytes_in_words(cell)) for cell in cells]
    return columns(rows, right=(3,))


def seconds(cell: Cell) -> str:
    return "-" if cell.seconds_per_token is None else f"{cell.seconds_per_token:.3g}"


def bytes_in_words(cell: Cell) -> str:
    """`cuda:0 7.1 GiB, cpu 3.0 GiB`, and what has no place."""
    told = [f"{place} {format_size(size)}" for place, size in cell.places]
    told += [f"{format_size(cell.shortfall)} missing"] if cell.shortfall else []
    return ", ".join(told) or cell.words


def of_compared(strategy: str, plan: Plan | None, trouble: str) -> dict[str, Any]:
    """One strategy; without a plan only what kept it from one."""
    uses = plan.prediction.places if plan else ()
    return {
        "strategy": strategy,
        "fits": plan.fits if plan else False,
        "shortfall": plan.shortfall if plan else None,
        "weights": {use.place: use.weights for use in uses if use.used},
        "peak": {use.place: use.used for use in uses if use.used},
        "seconds_per_token": plan.prediction.seconds_per_token if plan else None,
        "workload_seconds": plan.prediction.workload_seconds if plan else None,
        "device_map": plan.device_map() if plan else None,
        "trouble": trouble,
    }


def compared(rows: Iterable[tuple[str, Plan | None, str]]) -> str:
    """A line for each strategy: whether all it needs fits, what rests where, and how long a token takes."""
    told = [("strategy", "fits", "s/token", "whole answer", "weights")]
    troubles = []
    for strategy, plan, trouble in rows:
        if plan is None:
            told.append((strategy, "refused", "-", "-", "-"))
            troubles.append(f"{strategy}: {trouble}")
            continue
        fits = "yes" if plan.fits else f"{format_size(plan.shortfall)} short"
        prediction = plan.prediction
        weights = ", ".join(f"{use.place} {format_size(use.weights)}" for use in prediction.places if use.weights)
        times = (f"{prediction.seconds_per_token:.3g}", f"{prediction.workload_seconds:.3g} s")
        told.append((strategy, fits, *times, weights))
    note = "Fits counts weights, KV cache and working memory; accelerate's own maps count weights alone."
    return "\n".join([columns(told, right=(2, 3)), "", *troubles, note])
