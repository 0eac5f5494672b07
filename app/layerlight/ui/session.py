"""The session: what is true now, and all that a person can ask for. Views know only this."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal, SignalInstance, Slot

from layerlight.core.advice import verdict_of
from layerlight.core.device import Device, Machine
from layerlight.core.errors import LayerlightError, StoreFailed
from layerlight.core.fixes import Fix
from layerlight.core.load_request import load_request, loads_alike
from layerlight.core.machines.machine_figures import MachineFile
from layerlight.core.messages import (
    CalibrateRequest,
    DevicesSurveyed,
    EngineStopped,
    EngineWarmed,
    Event,
    Failed,
    Failure,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    MachineCalibrated,
    MemoryMeasured,
    ModelInspected,
    ModelUnloaded,
    PlaceMemory,
    Planned,
    PromptCounted,
    Request,
    RunFinished,
    StarterReady,
    StarterRequest,
    StopRequest,
    StrategiesMapped,
    StrategiesRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.core.model import Model
from layerlight.core.pacing.calibration import Calibration, calibrated, with_rates
from layerlight.core.pacing.correction import Run
from layerlight.core.placing import ENGINE_STRATEGIES, default_context
from layerlight.core.plan import Plan
from layerlight.core.planning.placement_map import read_map_file
from layerlight.core.settings import Settings
from layerlight.core.state import Phase, State, apply
from layerlight.store.chats import ChatStore, Conversation
from layerlight.store.turns import Turn
from layerlight.ui.chats import Chats
from layerlight.ui.conversations import Conversations
from layerlight.ui.happenings import (
    AdviceChanged,
    ConversationChanged,
    Dismissed,
    MachineChosen,
    Noticed,
    PlanChanged,
    RequestChanged,
    SettingsChanged,
)
from layerlight.ui.history import History
from layerlight.ui.inspector import Found, Inspector
from layerlight.ui.lanes import Lane, lanes_of
from layerlight.ui.planning import Levers, Pins, Planning, Question, moved
from layerlight.ui.ram_watch import RamWatch, look
from layerlight.ui.strategies import Strategies

LEVERS = ("limits", "context", "dtype", "quantization", "attention", "strategy", "kv")
"""Settings that bear on the plan."""
UNHEARD = 2000
"""ms after which a stop counts as not heard."""


class EngineLink(Protocol):
    """What a session needs of the engine; `arrived` carries a list of events on the session's thread."""

    @property
    def arrived(self) -> SignalInstance: ...

    def start(self) -> None: ...

    def send(self, request: Request) -> None: ...

    def replace(self, reason: str) -> None: ...

    def close(self) -> None: ...


class Session(QObject):
    """Requests go down, events come up; each event passes `apply` and then reaches the views by `changed`."""

    changed = Signal(object, object)
    """(State, the event or happening that led to it)."""

    def __init__(
        self,
        engine: EngineLink,
        settings: Settings,
        store: ChatStore | None = None,
        inspect: Callable[[str], Model] | None = None,
    ) -> None:
        """`inspect` reads a model folder; it is called on a thread of its own."""
        super().__init__()
        self.state = State()
        self.settings = settings
        self.problem: Failure | None = None
        """Why there is no plan, when there is none."""
        self.notice = ""
        self.waiting: str | None = None
        """The type of the request that has been sent and not been answered yet."""
        self.stopping = False
        self._engine = engine
        self._chats = Chats(store or ChatStore(None))
        self.conversations = Conversations(self)
        self._lanes: dict[bool, tuple[tuple[State, Machine | None] | None, tuple[Lane, ...]]] = {}
        self._asking = ""
        """What is said while the Hub is asked."""
        self.elsewhere: MachineFile | None = None
        """The machine that is planned for in place of this one."""
        self._limits_elsewhere: tuple[tuple[str, int], ...] = ()
        self._calibration: Calibration | None = None
        self._runs: tuple[Run, ...] = ()
        self._identity = ""
        self._config: str | None = None
        self._unloadable = ""
        self._history = History[Levers]()
        self._before_pins: Levers | None = None
        self._closed = False
        self._system_motion = False
        self._lit = 0.0
        self.planning = Planning(self._question)
        self.planning.made.connect(self._take_plan)
        self.planning.advised.connect(self._tell_advice)
        self.planning.refused.connect(self._refuse_pins)
        self.strategies = Strategies(self._ask_strategies)
        self.strategies.mapped.connect(self._take_maps)
        self._ram_watch = RamWatch()
        self._ram_watch.seen.connect(self._take_ram, Qt.ConnectionType.QueuedConnection)
        self._inspector = Inspector(inspect)
        self._inspector.found.connect(self._take_inspection)
        self._unheard = QTimer(self)
        self._unheard.setSingleShot(True)
        self._unheard.setInterval(UNHEARD)
        self._unheard.timeout.connect(self._stop_unheard)
        self._due: deque[Event] = deque()
        """Events that have arrived and wait for their turn."""
        self._untold: deque[object] = deque()
        """Events and happenings that the views hear in their turn."""
        self._turn_ends: float | None = None
        self._told = False
        """Whether the views have heard something in this turn."""
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._next_turn)
        engine.arrived.connect(self._take_all)

    # -- what views ask ------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a new request would have to wait."""
        return self.state.busy or self.waiting is not None

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._chats.turns

    @property
    def answering(self) -> Turn | None:
        return self._chats.answering

    @property
    def reduced_motion(self) -> bool:
        """Whether as little as possible should move: as a person chose, else as the system asks."""
        chosen = self.settings.reduced_motion
        return self._system_motion if chosen is None else chosen

    @property
    def chats(self) -> Chats:
        return self._chats

    @property
    def can_answer_again(self) -> bool:
        """Whether there is a question to which another answer can be given now."""
        return self.state.loaded is not None and not self.busy and self._chats.last_question is not None

    def lanes(self, prefer_next: bool = False) -> tuple[Lane, ...]:
        """The lanes of the state as it is now, made once for all views."""
        elsewhere = self.elsewhere.machine if self.elsewhere is not None else None
        key, lanes = self._lanes.get(prefer_next, (None, ()))
        if key is None or key[0] is not self.state or key[1] is not elsewhere:
            lanes = lanes_of(self.state, prefer_next, elsewhere)
            self._lanes[prefer_next] = ((self.state, elsewhere), lanes)
        return lanes

    @property
    def absent_limits(self) -> tuple[str, ...]:
        """Places that the settings limit and this machine does not have."""
        machine = self.state.machine
        return self.settings.limits_on(machine)[1] if machine is not None and self.elsewhere is None else ()

    @property
    def machine(self) -> Machine | None:
        """The machine that is planned for."""
        return self.elsewhere.machine if self.elsewhere is not None else self.state.machine

    @property
    def limits(self) -> tuple[tuple[str, int], ...]:
        """The limits of the machine that is planned for; those of absent places too."""
        return self.settings.limits if self.elsewhere is None else self._limits_elsewhere

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
    def can_calibrate(self) -> bool:
        return self.state.engine_warm and not self.busy

    @property
    def can_ask(self) -> bool:
        """Whether the engine and its libraries are there."""
        return self.state.engine_running and self.state.engine_warm

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the model are on this machine."""
        return self.state.model is not None and not self._unloadable

    @property
    def is_calibrated(self) -> bool:
        """Whether this machine's own rates are known."""
        return self.state.machine is not None and bool(self.state.machine.bandwidths)

    @property
    def is_by_hand(self) -> bool:
        """Whether the plan is another one than the fastest because a person wished so."""
        return bool(self.planning.pins) or self.strategy != "fastest"

    @property
    def strategy(self) -> str:
        """Who chooses the places: a strategy's name, or `by-hand`."""
        return "by-hand" if self.planning.map else self.settings.strategy

    @property
    def can_undo(self) -> bool:
        return self._history.can_undo

    @property
    def can_redo(self) -> bool:
        return self._history.can_redo

    @property
    def context(self) -> int:
        """Tokens of the plan's context: as chosen, within what the model was made for."""
        model = self.state.model
        if model is None:
            return self.settings.context or 4096
        asked = self.settings.context or default_context(model)
        return min(asked, model.context_length or asked)

    @property
    def plan_is_loaded(self) -> bool:
        """Whether what is in memory was loaded by the plan that is shown for the next load."""
        loaded, plan = self.state.loaded_plan, self.state.plan
        if loaded is None or plan is None or self.elsewhere is not None:
            return False
        return loaded is plan or loads_alike(loaded, plan)

    # -- start and end -------------------------------------------------------------------------------------------

    def begin(self, machine: Machine | None = None) -> None:
        """Starts the engine, and shows RAM and disk meanwhile: as given, or as they are now."""
        self._engine.start()
        if self.state.machine is None:
            self._take(DevicesSurveyed(machine or here()))

    def reopen(self, chats: Chats) -> None:
        """Shows these chats' conversation, and keeps new ones there; another thread may have read them."""
        chats.take_over()
        self._chats = chats
        if chats.trouble is not None:
            self._fail(chats.trouble)
        if self._chats.notice:
            self.notify(self._chats.notice)
        self._tell(ConversationChanged())

    def close(self) -> None:
        """Nothing is heard after this. What has been answered so far is kept."""
        if self._closed:
            return
        self._closed = True
        self._due.clear()
        self._unheard.stop()
        self.planning.close()
        self.strategies.close()
        self._inspector.close()
        self.conversations.close()
        with suppress(StoreFailed):  # nobody is left to tell; the store keeps its last save
            self._chats.end_answer(self.state.answer, None)
        self._engine.close()
        self._chats.close()

    # -- commands ------------------------------------------------------------------------------------------------

    def open_folder(self, folder: str) -> None:
        """Inspects a folder, or the folder of a file, on a thread; the newest request counts."""
        if self._refused("opening another model"):
            return
        self._inspector.inspect(folder)

    def open_public(self, name: str) -> None:
        """Plans a bundled public model by its shape alone, without any file of it."""
        if not self._refused("opening another model"):
            self._inspector.look_up(name)

    def open_hub(self, name: str) -> None:
        """Plans `org/name` of the Hugging Face Hub: its config and its files' headers are read, no weight."""
        if not self._refused("opening another model"):
            name = name.strip().removeprefix("hub:")
            self._asking = f"Asking the Hugging Face Hub about {name}: its config and its files’ headers, no weights."
            self.notify(self._asking)
            self._inspector.ask_hub(name)

    def load(self) -> None:
        """Loads the model as planned."""
        if self.planning.pending:
            self.planning.at_once()
        if self._awaits_accelerate():
            self.notify("accelerate is still being asked where it would put the layers: a moment.")
            return
        plan, refusal = self.state.plan, self.load_refusal
        if refusal:
            if self.state.model is not None:
                self.notify(refusal)
            return
        if plan is not None and not self._refused("loading"):
            self._send(load_request(plan, self.settings.offload_folder))

    def calibrate(self) -> None:
        """Measures how fast this machine is: at most 15 s, and it can be stopped."""
        if not self._refused("measuring this machine"):
            self._send(CalibrateRequest(self.settings.offload_folder))

    def survey(self) -> None:
        """Looks at the machine again."""
        if not self._refused("looking at the machine"):
            self._engine.send(SurveyRequest())

    def unload(self) -> None:
        if self.state.loaded is not None and not self._refused("unloading"):
            self._send(UnloadRequest())

    def fetch_starter(self) -> None:
        if not self._refused("fetching a model"):
            self._send(StarterRequest())

    def stop(self) -> None:
        """Stops what runs at its next boundary. Where that can't be heard the engine is replaced, and that is said."""
        if not self.busy:
            return
        if self.stopping and self.state.phase is Phase.RUNNING:
            self._engine.replace("It was replaced at your request; the model has to be loaded again.")
            return
        if not self.stopping:
            self.stopping = True
            self._engine.send(StopRequest())
            self._unheard.start()
            self._tell(RequestChanged())

    def ask(self, text: str) -> bool:
        """Puts a question; False when it was not taken, and the words should stay where they are."""
        return bool(text.strip()) and self._answer("the next question", partial(self._chats.ask, text))

    def ask_instead(self, text: str) -> bool:
        """Puts the last question in other words; the one before stays as its alternative. False as for `ask`."""
        return bool(text.strip()) and self._answer("the next question", partial(self._chats.ask_instead, text))

    def answer_again(self) -> bool:
        """Answers the last question anew; the answer before stays as its alternative. False when it was not taken."""
        if self._chats.last_question is None:
            return False
        taken = self._answer("another answer", self._chats.take_back_answer)
        if taken and self.settings.temperature == 0:
            self.notify("The temperature is 0, so the likeliest answer comes again. Raise it under Sampling.")
        elif taken and self.settings.seed is not None:
            self.notify(f"The seed is fixed at {self.settings.seed}, so the same answer comes again: see Sampling.")
        return taken

    def _answer(self, what: str, begin: Callable[[], None]) -> bool:
        """Asks for an answer to the turns as they are after `begin`."""
        if self._refused(what):
            return False
        if self.state.loaded is None:
            self.notify("Load a model first; then it can answer.")
            return False
        plan = self.state.loaded_plan
        try:
            begin()
            self._tell(ConversationChanged())
            request = self._request()
            self._chats.begin_answer(request, self.state.loaded, verdict_of(plan).words if plan else "")
        except StoreFailed as failure:
            self._fail(failure)
            return False
        self._tell(ConversationChanged())
        self._send(request)
        return True

    def new_conversation(self) -> None:
        if not self._refused("a new chat"):
            self.show_conversation(None, ())

    def show_conversation(self, conversation: Conversation | None, turns: tuple[Turn, ...]) -> None:
        """Shows this conversation as it was read; None is a new one."""
        self._chats.show(conversation, turns)
        self._tell(ConversationChanged())

    def tell(self, event: object) -> None:
        """Tells the views what happened inside the window."""
        self._tell(event)

    # -- the plan ------------------------------------------------------------------------------------------------

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

    def undo(self) -> None:
        self._restore(self._history.undo(self._chosen()))

    def redo(self) -> None:
        self._restore(self._history.redo(self._chosen()))

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

    def _set_limits(self, limits: tuple[tuple[str, int], ...]) -> None:
        if self.elsewhere is None:
            self.change_settings(limits=limits)
        elif limits != self._limits_elsewhere:
            self._limits_elsewhere = limits
            self.planning.soon()
            self._tell(SettingsChanged())

    def _question(self) -> Question | None:
        """What is to be planned now."""
        model, machine = self.state.model, self.machine
        if model is None or machine is None:
            return None
        levers = self._levers()
        here = tuple(limit for limit in levers.limits if machine.has(limit[0]))
        runs = self._runs if self.elsewhere is None else ()
        return Question(model, machine, replace(levers, limits=here), runs, self._identity, self._config)

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

    # -- what was measured before ----------------------------------------------------------------------------------

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

    # -- settings ------------------------------------------------------------------------------------------------

    def change_settings(self, **values: object) -> None:
        """Takes new settings and plans again where they bear on the plan."""
        before, self.settings = self.settings, replace(self.settings, **values)  # type: ignore[arg-type]
        if before == self.settings:
            return
        if any(getattr(before, name) != getattr(self.settings, name) for name in LEVERS):
            self.planning.soon()
        self._tell(SettingsChanged())

    def take_system_motion(self, reduced: bool) -> None:
        """Whether the system asks for less motion."""
        if reduced != self._system_motion and not self._closed:
            self._system_motion = reduced
            self._tell(SettingsChanged())

    def notify(self, words: str) -> None:
        self.notice = words
        self._tell(Noticed(words))

    def dismiss(self) -> None:
        """Puts the error or the notice away."""
        self.notice = ""
        self.state = replace(self.state, error=None)
        self._tell(Dismissed())

    def measure_ram(self) -> None:
        """Reads RAM and disk again, for the window's cards, and tells it when they were read."""
        if self.state.machine is not None and not self._closed:
            self._ram_watch.look()

    @Slot(object)
    def _take_ram(self, devices: tuple[Device, ...]) -> None:
        """What the engine measured stays."""
        machine = self.state.machine
        if machine is None or self._closed:
            return
        known = {each.place: each for each in self.state.memory}
        for device in devices:
            before = known.get(device.id, PlaceMemory(device.id, None, None, 0))
            known[device.id] = replace(before, total=device.total, free=device.free)
        ordered = tuple(known[each.id] for each in machine.devices if each.id in known)
        if ordered != self.state.memory:
            self._take(MemoryMeasured(ordered))

    # -- events --------------------------------------------------------------------------------------------------

    @Slot(object)
    def _take_all(self, events: list[Event]) -> None:
        if not self._closed:
            self._due.extend(events)
            self._take_due()

    def _take_due(self) -> None:
        """Takes what has arrived, as much as fits into one turn of the event loop.

        Of a load's many small steps that arrive together the views hear the last of each kind.
        """
        while self._due and self._has_time():
            event = self._due.popleft()
            if isinstance(event, STEPS) and _is_overtaken(event, self._due):
                self.state = apply(self.state, event)
            else:
                self._take(event)

    def _has_time(self) -> bool:
        """Whether something more fits into this turn of the event loop; the first thing always does."""
        now = time.perf_counter()
        if self._turn_ends is None:
            self._turn_ends = now + TURN
            self._turn.start()
            return True
        return now < self._turn_ends

    @Slot()
    def _next_turn(self) -> None:
        self._turn_ends, self._told = None, False
        if not self._closed:
            self._tell_due()
            self._take_due()

    def _take(self, event: Event) -> None:
        match event:
            case DevicesSurveyed(machine=machine):
                event = DevicesSurveyed(with_rates(machine, self._calibration))
            case MachineCalibrated(machine=machine, spreads=spreads):
                self._calibration = calibrated(machine, spreads, time.time())
            case Failed(failure=failure, during="StrategiesRequest"):
                event = StrategiesMapped(self.strategies.asked, trouble=failure.message)
            case _:
                pass
        before = self.state
        self.state = apply(self.state, event)
        if isinstance(event, StrategiesMapped):
            self.strategies.take(event)  # no view shows it as it is
            return
        try:
            self._keep(event)
        except StoreFailed as failure:
            self.state = apply(self.state, Failed(Failure.of(failure), "TextRequest"))
        if _answers(event, self.waiting):
            self.waiting = None
        if before.busy and not self.state.busy:
            self.stopping = False
            self._unheard.stop()
            self.strategies.resume()
        if isinstance(event, LayerRan) and self._holds_still():
            return
        self._tell(event)
        self._follow(event)

    def _holds_still(self) -> bool:
        """Whether the light stays where it is for this once; where it went meanwhile is in the state."""
        now = time.monotonic()
        if self.reduced_motion and now - self._lit < CALM:
            return True
        self._lit = now
        return False

    def _keep(self, event: Event) -> None:
        """Into the store, before any view sees it."""
        match event:
            case TextProduced():
                self._chats.grow(self.state.answer)
            case RunFinished(result=result):
                self._chats.end_answer(result.text, result)
            case Failed() | EngineStopped():
                self._chats.end_answer(self.state.answer, None)
            case PromptCounted():
                self._chats.prompt_counted()
            case _:
                pass

    def _follow(self, event: Event) -> None:
        """What one event leads to."""
        match event:
            case EngineWarmed():
                self._engine.send(SurveyRequest())
            case DevicesSurveyed() | MachineCalibrated():
                self.planning.anew()
            case ModelInspected():
                self.planning.forget()
                self.strategies.forget()
                self.planning.soon()
            case StarterReady(folder=folder):
                self.open_folder(folder)
            case ModelUnloaded():
                self._engine.send(SurveyRequest())
            case RunFinished() | Failed() | EngineStopped():
                self.waiting = None
                self.stopping = False
                if isinstance(event, EngineStopped):
                    self.strategies.resume()
                    if event.expected and event.reason:
                        self.notify(event.reason)
                self._tell(ConversationChanged())
            case _:
                pass

    @Slot()
    def _stop_unheard(self) -> None:
        if not self.stopping:
            return
        if self.state.phase is Phase.RUNNING:
            self.notify("The engine finishes its current pass first. Press Stop again to replace it.")
        else:
            self._engine.replace("The stop was not heard within 2 seconds, so the engine was replaced.")

    # -- inspection ----------------------------------------------------------------------------------------------

    @Slot(object)
    def _take_inspection(self, found: Found | LayerlightError) -> None:
        if self._closed:
            return
        if self._asking and self.notice == self._asking:
            self.notify("")
        if isinstance(found, LayerlightError):
            self._fail(found)
            return
        if found.model.folder:
            self.settings = self.settings.with_folder(found.model.folder)
        self.problem = None
        self._identity, self._config, self._unloadable = found.identity, found.config, found.unloadable
        self._history.clear()
        self._take(ModelInspected(found.model))
        self._tell(SettingsChanged())

    # -- within --------------------------------------------------------------------------------------------------

    def _request(self) -> TextRequest:
        chosen = self.settings
        return TextRequest(
            self._chats.messages(chosen.system),
            chosen.seed if chosen.seed is not None else random.randrange(2**31),
            chosen.max_new_tokens,
            chosen.temperature,
            chosen.top_p,
            chosen.top_k,
            chosen.repetition_penalty,
        )

    def _refused(self, what: str) -> bool:
        """Whether something else runs; says so when it does."""
        if not self.busy:
            return False
        doing = {
            Phase.LOADING: "loading",
            Phase.RUNNING: "answering",
            Phase.FETCHING: "fetching a model",
            Phase.CALIBRATING: "measuring this machine",
        }
        now = doing.get(self.state.phase, "at work")
        self.notify(f"The engine is {now}: stop it, or wait, before {what}.")
        return True

    def _send(self, request: Request) -> None:
        self.waiting = type(request).__name__
        self.stopping = False
        self.notice = ""
        if self.state.error is not None:
            self.state = replace(self.state, error=None)
        self._engine.send(request)
        self._tell(RequestChanged())

    def _fail(self, failure: LayerlightError) -> None:
        self._take(Failed(Failure.of(failure)))

    def _tell(self, event: object) -> None:
        """The views hear it now, or in a later turn where this one has been long enough; in order in any case."""
        if not self._closed:
            self._untold.append(event)
            self._tell_due()

    def _tell_due(self) -> None:
        while self._untold and (self._has_time() or not self._told):
            self._told = True
            self.changed.emit(self.state, self._untold.popleft())


ENDS = ("Failed", "EngineStopped", "RunFinished", "StarterReady", "ModelLoaded", "MachineCalibrated")
STEPS = (LayerPlaced, LoadProgressed)
CALM = 0.5
"""Seconds between two steps of the light where motion is reduced."""
TURN = 0.003
"""Seconds after which the same turn of the event loop takes no further event, and tells the views no other."""


def here() -> Machine:
    """This machine as far as it can be seen without the engine."""
    return Machine(look())


def _with_tied(model: Model | None, layers: Iterable[str]) -> tuple[str, ...]:
    """The layers and those that share weights with them: they rest together."""
    names = tuple(layers)
    groups = [group for group in model.tied if set(group) & set(names)] if model is not None else []
    return tuple(dict.fromkeys((*names, *(name for group in groups for name in group))))


def _is_overtaken(event: Event, later: Iterable[Event]) -> bool:
    """Whether another step of the same kind follows before anything else does."""
    for each in later:
        if type(each) is type(event):
            return True
        if not isinstance(each, STEPS):
            return False
    return False


def _answers(event: Event, waiting: str | None) -> bool:
    """Whether an event is the first answer to the request that waits."""
    firsts = {
        "LoadRequest": "LoadStarted",
        "TextRequest": "PromptCounted",
        "UnloadRequest": "ModelUnloaded",
        "StarterRequest": "StarterProgressed",
        "CalibrateRequest": "CalibrationProgressed",
    }
    if waiting is None:
        return False
    name = type(event).__name__
    return name in (firsts.get(waiting), *ENDS)
