"""The plan's levers: limits, pins, maps, strategies and fixes as a person chooses them, with undo and redo."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import Slot

from layerlight.core.errors import LayerlightError
from layerlight.core.fixes import Fix
from layerlight.core.machines.machine_figures import MachineFile
from layerlight.core.messages import Failure, Planned
from layerlight.core.model import Model
from layerlight.core.placing import ENGINE_STRATEGIES
from layerlight.core.plan import Plan
from layerlight.core.planning.placement_map import read_map_file
from layerlight.core.settings import Settings
from layerlight.ui.happenings import MachineChosen, PlanChanged
from layerlight.ui.history import History
from layerlight.ui.plan_basis import PlanBasis
from layerlight.ui.planning import Levers, Pins, moved
from layerlight.ui.state_keeper import EngineLink


class PlanLevers(PlanBasis):
    """What a person does to the plan. Each change is remembered before it is made."""

    def __init__(self, engine: EngineLink, settings: Settings) -> None:
        super().__init__(engine, settings)
        self.problem: Failure | None = None
        """Why there is no plan, when there is none."""
        self._history = History[Levers]()
        self._before_pins: Levers | None = None
        self.planning.made.connect(self._take_plan)
        self.planning.refused.connect(self._refuse_pins)

    def set_limit(self, place: str, size: int | None) -> None:
        """Bytes that a place may hold; None takes the limit away."""
        limits = {**dict(self.limits), place: size}
        kept = tuple(sorted((name, value) for name, value in limits.items() if value is not None))
        self._set_limits(kept)

    def plan_for(self, machine: MachineFile | None) -> None:
        """Plans for another machine, or for this one again."""
        if machine is self.elsewhere or self._refused("planning for another machine"):
            return
        self.elsewhere, self._limits_elsewhere = machine, ()
        self.planning.pins = self.planning.map = ()
        self._history.clear()
        self._tell(MachineChosen())
        self.planning.now()

    # -- places --------------------------------------------------------------------------------------------------

    def pin(self, layers: Iterable[str], place: str | None) -> None:
        """Wants these layers on a place, or leaves them to the plan again; refused in words when that can't be."""
        if self._refused("moving layers"):
            return
        whole, names = self._levers().map, _with_tied(self.state.model, layers)
        if whole and place is None:
            self.notify("Every layer has its place by now. “Reset to the fastest” leaves them to the plan again.")
            return
        self._before_pins = self._chosen()
        if whole:
            self.planning.try_map(tuple((name, str(place) if name in names else at) for name, at in whole))
        else:
            self.planning.try_pins(moved(self.planning.pins, names, place))

    def follow(self, strategy: str) -> None:
        """Lets a strategy choose the places; `by-hand` keeps them as they are now, for a person to change."""
        plan = self.state.plan
        if strategy == self.strategy or self._refused("moving layers"):
            return
        if strategy == "by-hand":
            if plan is not None:
                self.take_map(tuple(plan.device_map().items()))
            return
        self._remember_levers()
        self.planning.map = ()
        if strategy in ENGINE_STRATEGIES:
            self.planning.pins = ()
        self.change_settings(strategy=strategy)
        self.planning.now()

    def take_map(self, places: Pins) -> None:
        """Puts every layer where a map says; refused in words when that can't be."""
        if not self._refused("moving layers"):
            self._before_pins = self._chosen()
            self.planning.try_map(places)

    def open_map(self, path: str) -> None:
        """Reads a map from a JSON file: {layer: place}, or a plan that was exported."""
        if self.state.model is None:
            return
        try:
            self.take_map(read_map_file(path, self.state.model))
        except LayerlightError as failure:
            self.notify(f"{failure.message} {failure.hint}".strip())

    def reset_plan(self) -> None:
        """The fastest plan: no pins, no other strategy."""
        if self._refused("moving layers"):
            return
        self._remember_levers()
        self.planning.pins = self.planning.map = ()
        self.change_settings(strategy="fastest")
        self.planning.now()

    # -- fixes ---------------------------------------------------------------------------------------------------

    def apply(self, fix: Fix) -> None:
        """Takes over what a fix changes: wishes, context, limits; or plans for its machine, or its model."""
        if fix.machine is not None:
            if self.settings.strategy in ENGINE_STRATEGIES:
                self.change_settings(strategy="fastest")
            self.plan_for(fix.machine)
            return
        if fix.model:
            self.open_public(fix.model)
            return
        plan = self.state.plan
        if plan is None or fix.wishes is None or fix.budget is None or self._refused("changing the plan"):
            return
        self._remember_levers()
        values: dict[str, object] = {}
        for name in ("dtype", "quantization", "attention", "strategy", "kv"):
            if getattr(fix.wishes, name) != getattr(plan.wishes, name):
                values[name] = getattr(fix.wishes, name)
        if fix.budget.context != plan.budget.context:
            values["context"] = fix.budget.context
        self.planning.pins = fix.wishes.pins
        if not fix.wishes.map:
            self.planning.map = ()
        if fix.budget.limits != plan.budget.limits:
            absent = tuple(each for each in self.limits if each[0] in self.absent_limits)
            self._set_limits(tuple(sorted((*fix.budget.limits, *absent))))
        self.change_settings(**values)
        self.planning.now()

    @abstractmethod
    def open_public(self, name: str) -> None:
        """Plans a bundled public model by its shape alone."""

    # -- back and forth ------------------------------------------------------------------------------------------

    @property
    def can_undo(self) -> bool:
        return self._history.can_undo

    @property
    def can_redo(self) -> bool:
        return self._history.can_redo

    def undo(self) -> None:
        self._restore(self._history.undo(self._chosen()))

    def redo(self) -> None:
        self._restore(self._history.redo(self._chosen()))

    def _remember_levers(self) -> None:
        self._history.push(self._chosen())

    def _chosen(self) -> Levers:
        """The levers as a person left them: of a strategy only its name."""
        return replace(self._levers(), strategy=self.settings.strategy, map=self.planning.map)

    def _restore(self, levers: Levers | None) -> None:
        if levers is None or self._refused("changing the plan"):
            return
        self.planning.pins, self.planning.map = levers.pins, levers.map
        self._set_limits(levers.limits)
        context = {} if levers.context == self.context else {"context": levers.context}
        self.change_settings(
            strategy=levers.strategy, quantization=levers.quantization, dtype=levers.dtype,
            attention=levers.attention, kv=levers.kv, **context,
        )  # fmt: skip
        self.planning.now()

    # -- the plan that was made ----------------------------------------------------------------------------------

    @Slot(object)
    def _take_plan(self, found: Plan | Failure) -> None:
        if self._closed:
            return
        before, self._before_pins = self._before_pins, None
        if before is not None and (before.pins, before.map) != (self.planning.pins, self.planning.map):
            self._history.push(before)
        question = self._question()
        if question is not None:
            self.strategies.consider(question, wanted=self.strategy in ENGINE_STRATEGIES)
        if isinstance(found, Failure):
            self.problem = found
            self.state = replace(self.state, plan=None)
            self._tell(PlanChanged())
            return
        self.problem = None
        self._take(Planned(found))

    @Slot(str)
    def _refuse_pins(self, words: str) -> None:
        self._before_pins = None
        self.notify(words)


def _with_tied(model: Model | None, layers: Iterable[str]) -> tuple[str, ...]:
    """The layers and those that share weights with them: they rest together."""
    names = tuple(layers)
    groups = [group for group in model.tied if set(group) & set(names)] if model is not None else []
    return tuple(dict.fromkeys((*names, *(name for group in groups for name in group))))
