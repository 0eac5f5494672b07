"""Planning: from model, machine and levers to the plan that is shown, and what would be better; with undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from layerlight.core.advice import Advice, verdict_of
from layerlight.core.device import Budget, Machine, format_size
from layerlight.core.errors import LayerlightError
from layerlight.core.fixes import Fix
from layerlight.core.messages import Failure
from layerlight.core.model import LayerKind, Model
from layerlight.core.pacing.correction import Run, corrected, model_identity
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.kv_choice import why_not
from layerlight.ui.planner import Advised, Planner

SOON = 8
"""ms from a lever's move to the new plan: moves in between count once."""
SETTLE = 150
"""ms after the last new plan before it is asked what would be better: that takes planning a dozen times more."""
SMALL_LAYERS, SMALL_DEVICES = 130, 4
"""Dense models and machines up to this size are planned at once when a lever moves: it takes a few ms."""

Pins = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Levers:
    """What a person has chosen that bears on the plan."""

    pins: Pins = ()
    """(layer, place), a layer once."""
    strategy: str = "fastest"
    quantization: str | None = None
    dtype: str | None = None
    attention: str = "sdpa"
    context: int = 4096
    limits: tuple[tuple[str, int], ...] = ()
    map: Pins = ()
    """Where every layer rests, when all of it was chosen by hand or by accelerate: then nothing is pinned."""
    kv: str = ""
    """What keys and values are kept in, where model and machine can."""


@dataclass(frozen=True, slots=True)
class Question:
    """All that a plan is made from. `identity` names the model's files, for what is remembered of its runs."""

    model: Model
    machine: Machine
    levers: Levers
    runs: tuple[Run, ...] = ()
    identity: str = ""
    config: str | None = None
    """JSON of config.json for a model without a folder."""

    @property
    def is_small(self) -> bool:
        experts = self.model.shape is not None and self.model.shape.experts
        many = len(self.model.layers) > SMALL_LAYERS or len(self.machine.devices) > SMALL_DEVICES
        return not (experts or many)

    def plan(self) -> Plan:
        """Raises what `make_plan` raises."""
        levers = self.levers
        if self.model.folder:
            require_runnable(self.model)
        quantization = None if self.model.quantization else levers.quantization
        pins = () if levers.map else levers.pins
        wishes = Wishes(levers.dtype, quantization, levers.attention, levers.map, pins, levers.strategy, kv=self._kv())
        plan = make_plan(self.model, self.machine, Budget.of(levers.limits, levers.context), wishes)
        return corrected(plan, self.runs, self.identity) if self.runs else plan

    def _kv(self) -> str:
        shape = self.model.shape
        return "" if shape is None or why_not(shape, self.machine) else self.levers.kv


class Planning(QObject):
    """Makes the plan whenever it is told that something changed. Large plans are made on a thread, newest only."""

    made = Signal(object)
    """The Plan, or the Failure that says why there is none."""
    advised = Signal()
    refused = Signal(str)
    """Pins or a map that can't be, in words."""

    def __init__(self, question: Callable[[], Question | None]) -> None:
        """`question` tells what is to be planned now; None when there is nothing to plan."""
        super().__init__()
        self._question = question
        self.pins: Pins = ()
        self.map: Pins = ()
        """Where every layer rests, by hand; empty when the plan or a strategy chooses."""
        self.advice: Advice | None = None
        self.fixes: tuple[Fix, ...] | None = None
        """None while they are being looked for."""
        self._plan: Plan | None = None
        self._number = 0
        self._trial: tuple[Pins, Pins] | None = None
        self._waiting = False
        self._planner = Planner()
        self._planner.planned.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._planner.advised.connect(self._take_advice, Qt.ConnectionType.QueuedConnection)
        self._soon = QTimer(self, singleShot=True, interval=SOON)
        self._soon.timeout.connect(self.now)
        self._settling = QTimer(self, singleShot=True, interval=SETTLE)
        self._settling.timeout.connect(self._look)

    @property
    def pending(self) -> bool:
        """Whether something was changed and the plan does not follow it yet."""
        return self._soon.isActive() or self._waiting

    @property
    def is_making(self) -> bool:
        """Whether a first plan is on its way."""
        return self._plan is None and self.pending

    def soon(self) -> None:
        self._soon.start()

    @Slot()
    def now(self) -> None:
        """Makes the plan anew for what there is now; a large one arrives later."""
        self._begin(None)

    def anew(self) -> None:
        """Makes the plan anew, which arrives later: other facts are known now, and no hand waits for it."""
        self._begin(None, hand=False)

    def at_once(self) -> None:
        """Makes the plan here and now, however large it is."""
        self._begin(None, wait=True)

    def try_pins(self, pins: Pins) -> None:
        """Takes these pins when a plan with them fits; else says what is missing."""
        self._begin((pins, ()))

    def try_map(self, map: Pins) -> None:
        """Takes this map of every layer when it fits; else says what is missing."""
        self._begin(((), map))

    def forget(self) -> None:
        """Another model: nothing of the old one is pinned or advised."""
        self.pins, self.map, self._trial, self._plan = (), (), None, None
        self.advice, self.fixes = None, None
        self._settling.stop()

    def close(self) -> None:
        self._number += 1
        self._soon.stop()
        self._settling.stop()
        self._planner.close()

    # -- a plan ----------------------------------------------------------------------------------------------------

    def _begin(self, trial: tuple[Pins, Pins] | None, wait: bool = False, hand: bool = True) -> None:
        self._soon.stop()
        question = self._question()
        if question is None:
            return
        if trial is not None:
            question = replace(question, levers=_tried(question.levers, *trial))
        self._number += 1
        self._trial = trial
        # The first plan of a model takes several times as long as those after it.
        if wait or (hand and self._plan is not None and question.is_small):
            self._take(self._number, _answer(question))
        else:
            self._waiting = True
            self._planner.plan(self._number, question.plan)

    @Slot(int, object)
    def _take(self, number: int, found: Plan | LayerlightError) -> None:
        if number != self._number:
            return
        self._waiting = False
        trial, self._trial = self._trial, None
        if trial is not None:
            words = _refusal(found, self._plan)
            if words:
                self.refused.emit(f"That map can’t be used: {words}" if trial[1] else f"That can’t be pinned: {words}")
                return
            self.pins, self.map = trial
        self.fixes = None
        if isinstance(found, LayerlightError):
            self._plan = self.advice = None
            self._settling.stop()
            self.made.emit(Failure.of(found))
            return
        self._plan, self.advice = found, verdict_of(found)
        self._settling.start()
        self.made.emit(found)

    # -- advice ----------------------------------------------------------------------------------------------------

    @Slot()
    def _look(self) -> None:
        if self._plan is not None:
            self._planner.advise(self._plan)

    @Slot(object)
    def _take_advice(self, found: Advised) -> None:
        if found.plan is self._plan:
            self.advice, self.fixes = found.advice, found.fixes
            self.advised.emit()


def require_runnable(model: Model) -> None:
    """Imported late: it knows how folders are read."""
    from layerlight.core import inspection

    inspection.require_runnable(model)


def moved(pins: Pins, layers: Iterable[str], place: str | None) -> Pins:
    """The pins after `layers` were pinned to a place, or set free by None."""
    names = tuple(layers)
    kept = tuple(pin for pin in pins if pin[0] not in names)
    return kept if place is None else kept + tuple((name, place) for name in names)


def identity_of(model: Model) -> str:
    """A name for the model's files; empty for a model without any."""
    return model_identity(model) if model.folder else ""


def spoken(model: Model, layers: Iterable[str]) -> str:
    """`layer 7`, `layers 3–9`, `4 blocks`: what a person would call them."""
    found = [model.layer(name) for name in layers]
    numbers = sorted(layer.index for layer in found if layer.index is not None and layer.kind is LayerKind.DECODER)
    if len(found) == 1:
        if found[0].kind is LayerKind.EXPERTS:
            return f"experts of layer {found[0].index}"
        return f"layer {numbers[0]}" if numbers else found[0].kind.value
    if len(numbers) == len(found) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return f"layers {numbers[0]}–{numbers[-1]}"
    return f"{len(found)} blocks"


def _answer(question: Question) -> Plan | LayerlightError:
    try:
        return question.plan()
    except LayerlightError as failure:
        return failure


def _tried(levers: Levers, pins: Pins, map: Pins) -> Levers:
    """By hand takes the place of accelerate's choice; ours plan around pins."""
    strategy = levers.strategy if not map and not levers.map else "fastest"
    return replace(levers, pins=pins, map=map, strategy=strategy)


def _refusal(found: Plan | LayerlightError, before: Plan | None) -> str:
    """Why pins can't be taken; empty when they can, or when they at least make nothing worse."""
    if isinstance(found, LayerlightError):
        return f"{found.message} {found.hint}".strip()
    if found.fits or (before is not None and found.shortfall < before.shortfall):
        return ""
    tight = [use for use in found.prediction.places if use.over]
    parts = [f"{format_size(use.over)} are missing on {found.machine.device(use.place).name}" for use in tight]
    return f"{' and '.join(parts)}."
