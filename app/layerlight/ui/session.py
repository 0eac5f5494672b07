"""The session: what is true now, and all that a person can ask for. Views know only this."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal, SignalInstance, Slot

from layerlight.core import local_memory
from layerlight.core.advice import advise
from layerlight.core.device import Budget, Machine
from layerlight.core.errors import LayerlightError, StoreFailed, Unexpected
from layerlight.core.load_request import load_request
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStopped,
    EngineWarmed,
    Event,
    Failed,
    Failure,
    LayerPlaced,
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
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.core.model import Model
from layerlight.core.placing import default_context, make_plan
from layerlight.core.plan import Wishes
from layerlight.core.settings import Settings
from layerlight.core.state import Phase, State, apply
from layerlight.store.chats import ChatStore, Turn
from layerlight.ui.chats import Chats
from layerlight.ui.happenings import (
    ConversationChanged,
    Dismissed,
    Noticed,
    PlanChanged,
    RequestChanged,
    SettingsChanged,
)
from layerlight.ui.lanes import Lane, lanes_of

SOON = 8
"""ms from a lever's move to the new plan: moves in between count once."""
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
    _inspected = Signal(int, object)

    def __init__(
        self,
        engine: EngineLink,
        settings: Settings,
        store: ChatStore | None = None,
        inspect: Callable[[str], Model] | None = None,
    ) -> None:
        """`inspect` reads a model folder; it is called on a thread of its own."""
        super().__init__()
        self._inspect_model = inspect or inspect_model
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
        self._lanes: dict[bool, tuple[State | None, tuple[Lane, ...]]] = {}
        self._inspection = 0
        self._closed = False
        self._planning = QTimer(self)
        self._planning.setSingleShot(True)
        self._planning.setInterval(SOON)
        self._planning.timeout.connect(self.replan)
        self._unheard = QTimer(self)
        self._unheard.setSingleShot(True)
        self._unheard.setInterval(UNHEARD)
        self._unheard.timeout.connect(self._stop_unheard)
        self._inspected.connect(self._take_inspection, Qt.ConnectionType.QueuedConnection)
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

    def lanes(self, prefer_next: bool = False) -> tuple[Lane, ...]:
        """The lanes of the state as it is now, made once for all views."""
        state, lanes = self._lanes.get(prefer_next, (None, ()))
        if state is not self.state:
            lanes = lanes_of(self.state, prefer_next)
            self._lanes[prefer_next] = (self.state, lanes)
        return lanes

    @property
    def absent_limits(self) -> tuple[str, ...]:
        """Places that the settings limit and this machine does not have."""
        machine = self.state.machine
        return self.settings.limits_on(machine)[1] if machine is not None else ()

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
        if loaded is None or plan is None:
            return False
        return loaded is plan or load_request(loaded) == load_request(plan)

    # -- start and end -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts the engine, and looks at RAM and disk meanwhile."""
        self._engine.start()
        if self.state.machine is None:
            self._take(DevicesSurveyed(Machine((local_memory.ram(), local_memory.disk(Path.home())))))

    def reopen(self, store: ChatStore) -> None:
        """Shows the last conversation of a store, and keeps new ones there."""
        self._chats = Chats(store)
        try:
            self._chats.reopen()
        except StoreFailed as failure:
            self._fail(failure)
        if self._chats.notice:
            self.notify(self._chats.notice)
        self._tell(ConversationChanged())

    def close(self) -> None:
        """Nothing is heard after this. What has been answered so far is kept."""
        if self._closed:
            return
        self._closed = True
        self._unheard.stop()
        self._planning.stop()
        with suppress(StoreFailed):  # nobody is left to tell; the store keeps its last save
            self._chats.end_answer(self.state.answer, None)
        self._engine.close()
        self._chats.close()

    # -- commands ------------------------------------------------------------------------------------------------

    def open_folder(self, folder: str) -> None:
        """Inspects a folder, or the folder of a file, on a thread; the newest request counts."""
        if self._refused("opening another model"):
            return
        self._inspection += 1
        number = self._inspection
        threading.Thread(target=self._inspect, args=(number, folder), name="inspection", daemon=True).start()

    def load(self) -> None:
        """Loads the model as planned."""
        if self._planning.isActive():
            self.replan()
        plan = self.state.plan
        if plan is None or not plan.fits or self._refused("loading"):
            return
        self._send(load_request(plan, self.settings.offload_folder))

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
        if not text.strip() or self._refused("the next question"):
            return False
        if self.state.loaded is None:
            self.notify("Load a model first; then it can answer.")
            return False
        plan = self.state.loaded_plan
        try:
            self._chats.ask(text)
            self._tell(ConversationChanged())
            request = self._request()
            self._chats.begin_answer(request, self.state.loaded, advise(plan).words if plan else "")
        except StoreFailed as failure:
            self._fail(failure)
            return False
        self._tell(ConversationChanged())
        self._send(request)
        return True

    def new_conversation(self) -> None:
        if not self._refused("a new chat"):
            self._chats.begin_anew()
            self._tell(ConversationChanged())

    @Slot()
    def replan(self) -> None:
        """Makes the plan anew for the model, the machine and the settings there are now."""
        self._planning.stop()
        model, machine = self.state.model, self.state.machine
        if model is None or machine is None:
            return
        wishes = Wishes(
            dtype=self.settings.dtype,
            quantization=None if model.quantization else self.settings.quantization,
            attention=self.settings.attention,
        )
        try:
            _require_runnable(model)
            plan = make_plan(model, machine, Budget.of(self.settings.limits_on(machine)[0], self.context), wishes)
        except LayerlightError as failure:
            self.problem = Failure.of(failure)
            self.state = replace(self.state, plan=None)
            self._tell(PlanChanged())
            return
        self.problem = None
        self._take(Planned(plan))

    def set_limit(self, place: str, size: int | None) -> None:
        """Bytes that a place may hold; None takes the limit away."""
        limits = {**dict(self.settings.limits), place: size}
        kept = tuple(sorted((name, value) for name, value in limits.items() if value is not None))
        self.change_settings(limits=kept)

    def change_settings(self, **values: object) -> None:
        """Takes new settings and plans again where they bear on the plan."""
        before, self.settings = self.settings, replace(self.settings, **values)  # type: ignore[arg-type]
        if before == self.settings:
            return
        planning = ("limits", "context", "dtype", "quantization", "attention")
        if any(getattr(before, name) != getattr(self.settings, name) for name in planning):
            self._planning.start()
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
        """Reads RAM and disk again, for the window's cards; what the engine measured stays."""
        machine = self.state.machine
        if machine is None or self._closed:
            return
        known = {each.place: each for each in self.state.memory}
        for device in (local_memory.ram(), local_memory.disk(Path.home())):
            before = known.get(device.id, PlaceMemory(device.id, None, None, 0))
            known[device.id] = replace(before, total=device.total, free=device.free)
        ordered = tuple(known[each.id] for each in machine.devices if each.id in known)
        if ordered != self.state.memory:
            self._take(MemoryMeasured(ordered))

    # -- events --------------------------------------------------------------------------------------------------

    @Slot(object)
    def _take_all(self, events: list[Event]) -> None:
        for i, event in enumerate(events):
            if self._closed:
                return
            if isinstance(event, LayerPlaced) and i + 1 < len(events) and isinstance(events[i + 1], LayerPlaced):
                self.state = apply(self.state, event)  # of many layers in a row the views hear once
            else:
                self._take(event)

    def _take(self, event: Event) -> None:
        before = self.state
        self.state = apply(self.state, event)
        try:
            self._keep(event)
        except StoreFailed as failure:
            self.state = apply(self.state, Failed(Failure.of(failure), "TextRequest"))
        if _answers(event, self.waiting):
            self.waiting = None
        if before.busy and not self.state.busy:
            self.stopping = False
            self._unheard.stop()
        self._tell(event)
        self._follow(event)

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
            case DevicesSurveyed() | ModelInspected():
                self.replan()
            case StarterReady(folder=folder):
                self.open_folder(folder)
            case ModelUnloaded():
                self._engine.send(SurveyRequest())
            case RunFinished() | Failed() | EngineStopped():
                self.waiting = None
                self.stopping = False
                if isinstance(event, EngineStopped) and event.expected and event.reason:
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

    def _inspect(self, number: int, folder: str) -> None:
        """On a thread of its own: a folder may lie on a slow or sleeping disk."""
        found: Model | LayerlightError
        try:
            found = self._inspect_model(folder)
        except LayerlightError as failure:
            found = failure
        except Exception as error:  # noqa: BLE001  a thread's edge
            found = Unexpected(f"The folder could not be inspected: {error!r}.", "Please report it with the log.")
        if not self._closed:
            self._inspected.emit(number, found)

    @Slot(int, object)
    def _take_inspection(self, number: int, found: Model | LayerlightError) -> None:
        if number != self._inspection or self._closed:
            return
        if isinstance(found, LayerlightError):
            self._fail(found)
            return
        self.settings = self.settings.with_folder(found.folder)
        self.problem = None
        self._take(ModelInspected(found))
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
        doing = {Phase.LOADING: "loading", Phase.RUNNING: "answering", Phase.FETCHING: "fetching a model"}
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
        self.changed.emit(self.state, event)


def inspect_model(folder: str) -> Model:
    """Imported late: reading headers is no part of the window's start."""
    from layerlight.core.inspection import inspect_folder

    return inspect_folder(folder)


def _require_runnable(model: Model) -> None:
    from layerlight.core.inspection import require_runnable

    require_runnable(model)


def _answers(event: Event, waiting: str | None) -> bool:
    """Whether an event is the first answer to the request that waits."""
    firsts = {
        "LoadRequest": "LoadStarted",
        "TextRequest": "PromptCounted",
        "UnloadRequest": "ModelUnloaded",
        "StarterRequest": "StarterProgressed",
    }
    if waiting is None:
        return False
    name = type(event).__name__
    return name in (firsts.get(waiting), "Failed", "EngineStopped", "RunFinished", "StarterReady", "ModelLoaded")
