"""Strategies beside each other: the plan of each for the same model, machine and budget, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerlight.core.errors import LayerlightError
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan

Map = tuple[tuple[str, str], ...]
"""(layer, place) of every layer."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One strategy's plan, or why there is none. The plan may not fit."""

    strategy: str
    plan: Plan | None
    trouble: str = ""


def compared(plan: Plan, strategy: str, map: Map = ()) -> Compared:
    """What another strategy makes of a plan's question. One of accelerate's comes with the map it has worked out."""
    wishes = replace(plan.wishes, strategy=strategy, map=map, pins=() if map else plan.wishes.pins)
    try:
        return Compared(strategy, make_plan(plan.model, plan.machine, plan.budget, wishes))
    except LayerlightError as error:
        return Compared(strategy, None, error.message)
