"""The session: what is true now, and all that a person can ask for. Views know only this."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from PySide6.QtCore import Qt, Slot

from layerlight.core.device import Device, Machine
from layerlight.core.errors import LayerlightError, StoreFailed
from layerlight.core.load_request import load_request
from layerlight.core.messages import (
    CalibrateRequest,
    DevicesSurveyed,
    EngineStopped,
    EngineWarmed,
    Event,
    Failed,
    Failure,
    LayerRan,
    MachineCalibrated,
    MemoryMeasured,
    ModelInspected,
    ModelUnloaded,
    PlaceMemory,
    RunFinished,
    StarterReady,
    StarterRequest,
    StrategiesMapped,
    SurveyRequest,
    UnloadRequest,
)
from layerlight.core.model import Model
from layerlight.core.pacing.calibration import calibrated, with_rates
from layerlight.core.settings import Settings
from layerlight.core.state import State, apply
from layerlight.store.chats import ChatStore
from layerlight.ui.asking import Asking
from layerlight.ui.chats import Chats
from layerlight.ui.conversations import Conversations
from layerlight.ui.happenings import ConversationChanged, SettingsChanged
from layerlight.ui.inspector import Found, Inspector
from layerlight.ui.lanes import Lane, lanes_of
from layerlight.ui.machine_watch import MachineWatch
from layerlight.ui.plan_levers import PlanLevers
from layerlight.ui.ram_watch import RamWatch, look
from layerlight.ui.state_keeper import EngineLink

CALM = 0.5
"""Seconds between two steps of the light where motion is reduced."""


class Session(PlanLevers, Asking):
    """Requests go down, events come up; each event passes `apply` and then reaches the views by `changed`."""

    def __init__(
        self,
        engine: EngineLink,
        settings: Settings,
        store: ChatStore | None = None,
        inspect: Callable[[str], Model] | None = None,
    ) -> None:
        """`inspect` reads a model folder; it is called on a thread of its own."""
        super().__init__(engine, settings)
        self._chats = Chats(store or ChatStore(None))
        self.conversations = Conversations(self)
        self._lanes: dict[bool, tuple[tuple[State, Machine | None] | None, tuple[Lane, ...]]] = {}
        self._asking = ""
        """What is said while the Hub is asked."""
        self._system_motion = False
        self._lit = 0.0
        self.watch = MachineWatch(lambda: self.state)
        """Load, swap and the last minutes of each device."""
        self._ram_watch = RamWatch()
        self._ram_watch.seen.connect(self._take_ram, Qt.ConnectionType.QueuedConnection)
        self._inspector = Inspector(inspect)
        self._inspector.found.connect(self._take_inspection)

    # -- what views ask ------------------------------------------------------------------------------------------

    def lanes(self, prefer_next: bool = False) -> tuple[Lane, ...]:
        """The lanes of the state as it is now, made once for all views."""
        elsewhere = self.elsewhere.machine if self.elsewhere is not None else None
        key, lanes = self._lanes.get(prefer_next, (None, ()))
        if key is None or key[0] is not self.state or key[1] is not elsewhere:
            lanes = lanes_of(self.state, prefer_next, elsewhere)
            self._lanes[prefer_next] = ((self.state, elsewhere), lanes)
        return lanes

    @property
    def can_calibrate(self) -> bool:
        return self.state.engine_warm and not self.busy

    @property
    def is_calibrated(self) -> bool:
        """Whether this machine's own rates are known."""
        return self.state.machine is not None and bool(self.state.machine.bandwidths)

    @property
    def reduced_motion(self) -> bool:
        """Whether as little as possible should move: as a person chose, else as the system asks."""
        chosen = self.settings.reduced_motion
        return self._system_motion if chosen is None else chosen

    def take_system_motion(self, reduced: bool) -> None:
        """Whether the system asks for less motion."""
        if reduced != self._system_motion and not self._closed:
            self._system_motion = reduced
            self._tell(SettingsChanged())

    # -- start and end -------------------------------------------------------------------------------------------

    def begin(self, machine: Machine | None = None) -> None:
        """Starts the engine, and shows RAM and disk meanwhile: as given, or as they are now."""
        self._engine.start()
        if self.state.machine is None:
            self._take(DevicesSurveyed(machine or here()))

    def close(self) -> None:
        """Nothing is heard after this. What has been answered so far is kept."""
        if self._closed:
            return
        self._closed = True
        self._turns.close()
        self._unheard.stop()
        self.planning.close()
        self.strategies.close()
        self._inspector.close()
        self.conversations.close()
        with suppress(StoreFailed):  # nobody is left to tell; the store keeps its last save
            self._chats.end_answer(self.state.answer, None)
        self._engine.close()
        self._chats.close()

    # -- models --------------------------------------------------------------------------------------------------

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

    def load(self) -> None:
        """Loads the model as planned; refused in words while another one is being opened."""
        if self._inspector.pending:
            self.notify("Another model is still being opened: load it when its plan is shown.")
            return
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

    def unload(self) -> None:
        if self.state.loaded is not None and not self._refused("unloading"):
            self._send(UnloadRequest())

    def fetch_starter(self) -> None:
        if not self._refused("fetching a model"):
            self._send(StarterRequest())

    # -- the machine ---------------------------------------------------------------------------------------------

    def survey(self) -> None:
        """Looks at the machine again."""
        if not self._refused("looking at the machine"):
            self._engine.send(SurveyRequest())

    def calibrate(self) -> None:
        """Measures how fast this machine is: at most 15 s, and it can be stopped."""
        if not self._refused("measuring this machine"):
            self._send(CalibrateRequest(self.settings.offload_folder))

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


ENDS = ("Failed", "EngineStopped", "RunFinished", "StarterReady", "ModelLoaded", "MachineCalibrated")


def here() -> Machine:
    """This machine as far as it can be seen without the engine."""
    return Machine(look())


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
