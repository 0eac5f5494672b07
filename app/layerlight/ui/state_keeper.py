"""The state keeper: what is true now, told to the views by one signal, and the one request that goes down at a time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import QObject, QTimer, Signal, SignalInstance, Slot

from layerlight.core.errors import LayerlightError
from layerlight.core.messages import Event, Failed, Failure, Request, StopRequest
from layerlight.core.settings import Settings
from layerlight.core.state import Phase, State, apply
from layerlight.ui.event_turns import EventTurns
from layerlight.ui.happenings import Dismissed, Noticed, RequestChanged

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


class StateKeeper(QObject):
    """Each event passes `apply` and then reaches the views by `changed`."""

    changed = Signal(object, object)
    """(State, the event or happening that led to it)."""

    def __init__(self, engine: EngineLink, settings: Settings) -> None:
        super().__init__()
        self.state = State()
        self.settings = settings
        self.notice = ""
        self.waiting: str | None = None
        """The type of the request that has been sent and not been answered yet."""
        self.stopping = False
        self._engine = engine
        self._closed = False
        self._unheard = QTimer(self)
        self._unheard.setSingleShot(True)
        self._unheard.setInterval(UNHEARD)
        self._unheard.timeout.connect(self._stop_unheard)
        self._turns = EventTurns(self._take, self._pass_by, self._say)
        engine.arrived.connect(self._turns.arrive)

    @property
    def busy(self) -> bool:
        """Whether a new request would have to wait."""
        return self.state.busy or self.waiting is not None

    @property
    def can_ask(self) -> bool:
        """Whether the engine and its libraries are there."""
        return self.state.engine_running and self.state.engine_warm

    # -- what a person is told -----------------------------------------------------------------------------------

    def notify(self, words: str) -> None:
        self.notice = words
        self._tell(Noticed(words))

    def dismiss(self) -> None:
        """Puts the error or the notice away."""
        self.notice = ""
        self.state = replace(self.state, error=None)
        self._tell(Dismissed())

    def tell(self, event: object) -> None:
        """Tells the views what happened inside the window."""
        self._tell(event)

    def _tell(self, event: object) -> None:
        self._turns.tell(event)

    def _say(self, event: object) -> None:
        self.changed.emit(self.state, event)

    def _pass_by(self, event: Event) -> None:
        self.state = apply(self.state, event)

    @abstractmethod
    def _take(self, event: Event) -> None:
        """Takes an event, and tells it to the views."""

    def _fail(self, failure: LayerlightError) -> None:
        self._take(Failed(Failure.of(failure)))

    # -- requests ------------------------------------------------------------------------------------------------

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

    @Slot()
    def _stop_unheard(self) -> None:
        if not self.stopping:
            return
        if self.state.phase is Phase.RUNNING:
            self.notify("The engine finishes its current pass first. Press Stop again to replace it.")
        else:
            self._engine.replace("The stop was not heard within 2 seconds, so the engine was replaced.")

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
