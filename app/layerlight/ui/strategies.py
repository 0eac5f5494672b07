"""Strategies: what each would make of the question that is planned; ours by themselves, accelerate's by the engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from layerlight.core.comparison import Compared, Map
from layerlight.core.device import Machine
from layerlight.core.errors import LayerlightError, Unexpected
from layerlight.core.messages import StrategiesMapped, StrategiesRequest
from layerlight.core.model import Model
from layerlight.core.placing import STRATEGIES
from layerlight.core.plan import Plan
from layerlight.ui.planner import PAUSE
from layerlight.ui.planning import Question

SETTLE = 300
"""ms after the last change before strategies are compared."""
SOON = 30
"""The same where one of accelerate's is followed, and so waited for."""

Basis = tuple[object, ...]
"""What accelerate's maps depend on."""


class Strategies(QObject):
    """Compares on a thread whenever it is told of a question, the newest only."""

    changed = Signal()
    """There are rows, or words in their place."""
    mapped = Signal()
    """accelerate has answered about the question as it is now."""
    _compared = Signal(int, object, object)

    def __init__(self, ask: Callable[[StrategiesRequest], bool]) -> None:
        """`ask` hands a request to the engine; False when that can't answer now."""
        super().__init__()
        self._ask = ask
        self.rows: dict[str, Compared] = {}
        self.trouble = ""
        """Why accelerate has no maps for what is planned."""
        self._question: Question | None = None
        self._wanted = False
        self._maps: dict[str, Map] = {}
        self._basis: Basis | None = None
        """What the maps, or the trouble, are the answer to."""
        self._asked: tuple[int, Basis] | None = None
        self._number = 0
        self._compared.connect(self._take_rows, Qt.ConnectionType.QueuedConnection)
        self._settling = QTimer(self, singleShot=True, interval=SETTLE)
        self._settling.timeout.connect(self._compare)

    def map_for(self, strategy: str, model: Model, machine: Machine) -> Map:
        """accelerate's last map for this model on these places; empty when there is none. It may be out of date."""
        known = self._basis is not None and self._basis[0] is model and self._basis[1] == _places(machine)
        return self._maps.get(strategy, ()) if known else ()

    def is_current(self, question: Question) -> bool:
        """Whether accelerate has answered about just this."""
        return self._basis == _basis(question)

    @property
    def asked(self) -> int:
        """The number of the question that accelerate has not answered yet; 0 when there is none."""
        return self._asked[0] if self._asked is not None else 0

    def consider(self, question: Question, wanted: bool = False) -> None:
        """Compares for this question once it has settled; sooner where accelerate's answer is waited for."""
        if self._question is not None and self._question.model is not question.model:
            self.forget()
        self._question, self._wanted = question, wanted
        if wanted or question.machine.accelerators:
            self._settling.start(SOON if wanted else SETTLE)

    def take(self, told: StrategiesMapped) -> None:
        """accelerate's answer; one to an older question is asked again."""
        asked, self._asked = self._asked, None
        if asked is None or asked[0] != told.number or self._question is None:
            return
        if asked[1] != _basis(self._question):
            self._settling.start(SOON)
            return
        self._basis, self._maps, self.trouble = asked[1], dict(told.maps), told.trouble
        self.mapped.emit()
        self._compare()

    def resume(self) -> None:
        """The engine is free or new: what it has not answered is asked again."""
        self._asked = None
        if self._question is not None and not self.is_current(self._question):
            self.consider(self._question, self._wanted)

    def forget(self) -> None:
        """Another model."""
        self._number += 1
        self._settling.stop()
        self.rows, self.trouble = {}, ""
        self._question = self._basis = None
        self._maps = {}

    def close(self) -> None:
        self.forget()

    # -- the thread ------------------------------------------------------------------------------------------------

    @Slot()
    def _compare(self) -> None:
        question = self._question
        if question is None:
            return
        self._number += 1
        maps = dict(self._maps) if self.is_current(question) else {}
        words = (self._number, question, maps)
        threading.Thread(target=self._run, args=words, name="strategies", daemon=True).start()

    def _run(self, number: int, question: Question, maps: dict[str, Map]) -> None:
        ours = [_compared(question, name) for name in STRATEGIES]
        found = {each.strategy: each for each in ours}
        for name, pairs in maps.items():
            time.sleep(PAUSE)
            if number != self._number:
                return
            found[name] = _compared(question, name, pairs)
        if number == self._number:
            self._compared.emit(number, found, ours[0].plan)

    @Slot(int, object, object)
    def _take_rows(self, number: int, rows: dict[str, Compared], plan: Plan | None) -> None:
        question = self._question
        if number != self._number or question is None:
            return
        self.rows = rows
        if plan is not None and not self.is_current(question) and self._asked is None and _can_be_asked(question):
            request = StrategiesRequest(number, plan, question.config if not plan.model.folder else None)
            if self._ask(request):
                self._asked = number, _basis(question)
        self.changed.emit()


def _compared(question: Question, strategy: str, map: Map = ()) -> Compared:
    pins = () if map else question.levers.pins
    try:
        plan = replace(question, levers=replace(question.levers, strategy=strategy, map=map, pins=pins)).plan()
    except LayerlightError as failure:
        return Compared(strategy, None, failure.message)
    except Exception as error:  # noqa: BLE001  a thread's edge
        return Compared(strategy, None, Unexpected(f"The plan could not be made: {error!r}.").message)
    return Compared(strategy, plan)


def _can_be_asked(question: Question) -> bool:
    return bool(question.model.folder) or question.config is not None


def _places(machine: Machine) -> tuple[str, ...]:
    return tuple(device.id for device in machine.devices)


def _basis(question: Question) -> Basis:
    levers, machine = question.levers, question.machine
    frees = tuple((device.free, device.total) for device in machine.devices)
    return (
        question.model, _places(machine), frees, levers.limits, levers.context, levers.quantization, levers.dtype,
        levers.attention,
    )  # fmt: skip
