"""Many models on many machines: a cell each, with the verdict, bytes per place and seconds a token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from layerlight.core.advice import Verdict, advise
from layerlight.core.device import Budget, Machine
from layerlight.core.errors import LayerlightError
from layerlight.core.model import Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes


@dataclass(frozen=True, slots=True)
class Cell:
    """One model on one machine. `places` are predicted bytes at the peak, where something is used."""

    model: str
    machine: str
    verdict: Verdict
    words: str
    places: tuple[tuple[str, int], ...] = ()
    seconds_per_token: float | None = None
    """None when it can't be run there at all."""
    shortfall: int = 0
    """Bytes that have no place."""

    def content(self) -> dict[str, Any]:
        """As JSON writes it: `places` as bytes by place."""
        return {**asdict(self), "verdict": str(self.verdict), "places": dict(self.places)}


def table(
    models: Iterable[Model],
    machines: Iterable[tuple[str, Machine]],
    budget: Budget | None = None,
    wishes: Wishes | None = None,
) -> tuple[Cell, ...]:
    """A cell for each model on each (name, machine), model by model. A context too long for a model is shortened."""
    asked, rows = budget or Budget(), tuple(machines)
    return tuple(_cell(model, name, machine, asked, wishes or Wishes()) for model in models for name, machine in rows)


def _cell(model: Model, name: str, machine: Machine, budget: Budget, wishes: Wishes) -> Cell:
    known = {device.id for device in machine.devices}
    own = replace(
        budget,
        limits=tuple(each for each in budget.limits if each[0] in known),
        reserve=tuple(each for each in budget.reserve if each[0] in known),
        context=min(budget.context, model.context_length or budget.context),
    )
    try:
        plan = make_plan(model, machine, own, wishes)
    except LayerlightError as error:
        return Cell(model.name, name, Verdict.FAILED, error.message)
    advice = advise(plan)
    used = tuple((use.place, use.used) for use in plan.prediction.places if use.used)
    return Cell(model.name, name, advice.verdict, advice.words, used, plan.prediction.seconds_per_token, plan.shortfall)
