"""The plan's basis: machine, limits, context and settings that the next plan is made from, and accelerate's word."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Slot

from layerlight.core.device import Machine
from layerlight.core.load_request import loads_alike
from layerlight.core.machines.machine_figures import MachineFile
from layerlight.core.messages import DevicesSurveyed, StrategiesRequest
from layerlight.core.pacing.calibration import Calibration, with_rates
from layerlight.core.pacing.correction import Run
from layerlight.core.placing import ENGINE_STRATEGIES, default_context
from layerlight.core.settings import Settings
from layerlight.ui.happenings import AdviceChanged, SettingsChanged
from layerlight.ui.planning import Levers, Pins, Planning, Question
from layerlight.ui.state_keeper import EngineLink, StateKeeper
from layerlight.ui.strategies import Strategies

LEVERS = ("limits", "context", "dtype", "quantization", "attention", "strategy", "kv")
"""Settings that bear on the plan."""


class PlanBasis(StateKeeper):
    """Keeps the question that a plan answers; whatever changes in it leads to a new plan."""

    def __init__(self, engine: EngineLink, settings: Settings) -> None:
        super().__init__(engine, settings)
        self.elsewhere: MachineFile | None = None
        """The machine that is planned for in place of this one."""
        self._limits_elsewhere: tuple[tuple[str, int], ...] = ()
        self._calibration: Calibration | None = None
        self._runs: tuple[Run, ...] = ()
        self._identity = ""
        self._config: str | None = None
        self._unloadable = ""
        self.planning = Planning(self._question)
        self.planning.advised.connect(self._tell_advice)
        self.strategies = Strategies(self._ask_strategies)
        self.strategies.mapped.connect(self._take_maps)

    # -- what views ask ------------------------------------------------------------------------------------------

    @property
    def machine(self) -> Machine | None:
        """The machine that is planned for."""
        return self.elsewhere.machine if self.elsewhere is not None else self.state.machine

    @property
    def limits(self) -> tuple[tuple[str, int], ...]:
        """The limits of the machine that is planned for; those of absent places too."""
        return self.settings.limits if self.elsewhere is None else self._limits_elsewhere

    @property
    def absent_limits(self) -> tuple[str, ...]:
        """Places that the settings limit and this machine does not have."""
        machine = self.state.machine
        return self.settings.limits_on(machine)[1] if machine is not None and self.elsewhere is None else ()

    @property
    def context(self) -> int:
        """Tokens of the plan's context: as chosen, within what the model was made for."""
        model = self.state.model
        if model is None:
            return self.settings.context or 4096
        asked = self.settings.context or default_context(model)
        return min(asked, model.context_length or asked)

    @property
    def strategy(self) -> str:
        """Who chooses the places: a strategy's name, or `by-hand`."""
        return "by-hand" if self.planning.map else self.settings.strategy

    @property
    def is_by_hand(self) -> bool:
        """Whether the plan is another one than the fastest because a person wished so."""
        return bool(self.planning.pins) or self.strategy != "fastest"

    @property
    def load_refusal(self) -> str:
        """Why what is planned can't be loaded; empty when it can."""
        model, plan = self.state.model, self.state.plan
        if self.elsewhere is not None:
            return f"This is a plan for another machine, {self.elsewhere.title}: nothing can be loaded there."
        if model is not None and self._unloadable:
            return self._unloadable
        if plan is None or not plan.fits:
            return "There is no plan that fits."
        return ""

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the model are on this machine."""
        return self.state.model is not None and not self._unloadable

    @property
    def plan_is_loaded(self) -> bool:
        """Whether what is in memory was loaded by the plan that is shown for the next load."""
        loaded, plan = self.state.loaded_plan, self.state.plan
        if loaded is None or plan is None or self.elsewhere is not None:
            return False
        return loaded is plan or loads_alike(loaded, plan)

    # -- settings ------------------------------------------------------------------------------------------------

    def change_settings(self, **values: object) -> None:
        """Takes new settings and plans again where they bear on the plan."""
        before, self.settings = self.settings, replace(self.settings, **values)  # type: ignore[arg-type]
        if before == self.settings:
            return
        if any(getattr(before, name) != getattr(self.settings, name) for name in LEVERS):
            self.planning.soon()
        self._tell(SettingsChanged())

    def _set_limits(self, limits: tuple[tuple[str, int], ...]) -> None:
        if self.elsewhere is None:
            self.change_settings(limits=limits)
        elif limits != self._limits_elsewhere:
            self._limits_elsewhere = limits
            self.planning.soon()
            self._tell(SettingsChanged())

    # -- the question --------------------------------------------------------------------------------------------

    def _question(self) -> Question | None:
        """What is to be planned now."""
        model, machine = self.state.model, self.machine
        if model is None or machine is None:
            return None
        levers = self._levers()
        here = tuple(limit for limit in levers.limits if machine.has(limit[0]))
        runs = self._runs if self.elsewhere is None else ()
        return Question(model, machine, replace(levers, limits=here), runs, self._identity, self._config)

    def _levers(self) -> Levers:
        chosen = self.settings
        strategy, places = self._chosen_places()
        return Levers(
            self.planning.pins, strategy, chosen.quantization, chosen.dtype, chosen.attention, self.context,
            self.limits, places, chosen.kv,
        )  # fmt: skip

    def _chosen_places(self) -> tuple[str, Pins]:
        """(strategy, map). Until accelerate has answered, one of its strategies is planned as the fastest."""
        chosen, model, machine = self.settings.strategy, self.state.model, self.machine
        if self.planning.map:
            return "fastest", self.planning.map
        if chosen not in ENGINE_STRATEGIES:
            return chosen, ()
        known = self.strategies.map_for(chosen, model, machine) if model is not None and machine is not None else ()
        return (chosen, known) if known else ("fastest", ())

    def recall(self, calibration: Calibration | None, runs: tuple[Run, ...]) -> None:
        """What is known of this machine from before: its rates, and what runs took."""
        self._calibration, self._runs = calibration, runs
        machine = self.state.machine
        if machine is None or self._closed:
            return
        if with_rates(machine, calibration) != machine:
            self._take(DevicesSurveyed(machine))
        elif runs:
            self.planning.anew()

    # -- accelerate's word ---------------------------------------------------------------------------------------

    def _ask_strategies(self, request: StrategiesRequest) -> bool:
        if self._closed or self.busy or not self.can_ask:
            return False
        self._engine.send(request)
        return True

    def _awaits_accelerate(self) -> bool:
        """Whether the plan follows one of accelerate's strategies, and it has not answered about these levers yet."""
        question = self._question() if self.strategy in ENGINE_STRATEGIES else None
        return question is not None and not self.strategies.is_current(question)

    @Slot()
    def _take_maps(self) -> None:
        """accelerate's word on the plan as it is: followed where that is wished; where it can't be, that is said."""
        if self._closed or self.strategy not in ENGINE_STRATEGIES:
            return
        if self.strategies.trouble:
            self.notify(f"accelerate has no “{self.strategy}” for this model: {self.strategies.trouble}")
            self.change_settings(strategy="fastest")
        else:
            self.planning.anew()

    @Slot()
    def _tell_advice(self) -> None:
        if not self._closed:
            self._tell(AdviceChanged())
