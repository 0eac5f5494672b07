"""The plan's levers: precision, context, and a limit for each place; every move plans again at once."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFrame, QMenu, QScrollArea, QSlider, QVBoxLayout, QWidget

from layerlight.core import memory
from layerlight.core.device import DISK, Device, Machine
from layerlight.core.messages import LayerPlaced, LayerRan, LoadProgressed, MemoryMeasured, TextProduced
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import ENGINE_STRATEGIES
from layerlight.core.plan import Plan
from layerlight.core.planning.kv_choice import why_not
from layerlight.core.sizing.kv_cache import FP8
from layerlight.core.state import State
from layerlight.ui.controls import Check, Segments, button, column, label, retone, row, rule
from layerlight.ui.fixes_panel import FixesPanel
from layerlight.ui.limit_control import LimitControl
from layerlight.ui.session import Session
from layerlight.ui.strategy_panel import StrategyPanel
from layerlight.ui.words import plural, short_size

WIDTH = 352
"""As wide as what takes its place: the map beside it must not be drawn anew when they change."""
PRECISIONS = {"full": None, "int8": "int8", "nf4": "nf4"}
CACHES = {"full": ("", "As computed"), FP8: (FP8, "8-bit")}
"""(what keys and values are kept in, words) by choice."""
FOUR_BIT = tuple(name for name in memory.QUANTIZATIONS if name.startswith(("nf4", "fp4")))
SHORTEST = 256


class PlanPanel(QFrame):
    """Changes the session's settings; the plan, the map and the verdict follow."""

    def __init__(
        self, session: Session, fixes: FixesPanel | None = None, strategies: StrategyPanel | None = None
    ) -> None:
        """`fixes` and `strategies` may have been made before."""
        super().__init__()
        self.setObjectName("panel")
        self.setMinimumWidth(WIDTH)
        self.fixes, self.strategies = fixes or FixesPanel(session), strategies or StrategyPanel(session)
        self._session = session
        self._limits: dict[str, LimitControl] = {}
        self._rooms: tuple[object, ...] = ()
        self._shown_absent: tuple[str, ...] = ()
        self._build()
        session.changed.connect(self._changed)
        self._update()

    @property
    def limits(self) -> dict[str, LimitControl]:
        """The limit controls by place."""
        return self._limits

    @property
    def precision(self) -> Segments:
        return self._precision

    @property
    def context(self) -> QSlider:
        return self._context

    @property
    def cache(self) -> Segments:
        return self._cache

    @property
    def shortfall(self) -> str:
        return self._shortfall.text()

    def _build(self) -> None:
        self._precision = Segments((("full", "16-bit"), ("int8", "8-bit"), ("nf4", "4-bit")), "Precision")
        self._precision.chosen.connect(self._choose_precision)
        self._precision_note = label("", "3", wrap=True)
        self._context = QSlider(Qt.Orientation.Horizontal)
        self._context.setAccessibleName("Context in tokens")
        self._context.valueChanged.connect(self._choose_context)
        self._context_value = label("", size=13, weight=600)
        self._context_note = label("", "3", wrap=True)
        self._cache = Segments(tuple((key, words) for key, (_, words) in CACHES.items()), "KV cache")
        self._cache.chosen.connect(self._choose_cache)
        self._cache_note = label("", "3", wrap=True)
        self._cache_rows = QWidget()
        self._cache_rows.setLayout(column(label("KV cache"), self._cache, self._cache_note, gap=2))
        self._cache_rows.hide()
        self._places = QVBoxLayout()
        self._places.setSpacing(10)
        self._absent = QVBoxLayout()
        self._absent.setSpacing(6)
        self._disk = Check("Layers may rest on disk")
        self._disk.toggled.connect(self._choose_disk)
        self._disk_note = label("", "3", wrap=True)
        self._shortfall = label("", "bad", wrap=True)
        self._ties = label("", "3", wrap=True)
        inner = QWidget()
        inner.setLayout(
            column(
                self.fixes, label("Plan", "head"), self._precision, self._precision_note, 4, self.strategies,
                column(row(label("Context"), None, self._context_value), self._context, self._context_note, gap=2),
                self._cache_rows, 4, self._places, 2, column(self._disk, self._disk_note, gap=2), self._absent,
                self._shortfall, 4, rule(), self._ties, None, margins=(16, 16, 16, 12),
            )
        )  # fmt: skip
        self.reset = button("Reset to the fastest", "link")
        self.reset.clicked.connect(self._session.reset_plan)
        self.export = button("Export", "quiet", "As text, device_map, Python or JSON")
        area = QScrollArea()
        area.setWidget(inner)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.viewport().setAutoFillBackground(False)
        inner.setAutoFillBackground(False)
        outer = column(gap=0)
        outer.addWidget(area, 1)
        outer.addLayout(row(self.reset, None, self.export, margins=(16, 4, 12, 10)))
        self.setLayout(outer)

    def take_export(self, menu: QMenu) -> None:
        """The menu that the button opens."""
        self.export.setMenu(menu)

    # -- what a person moves -------------------------------------------------------------------------------------

    @Slot(str)
    def _choose_precision(self, key: str) -> None:
        self._session.change_settings(quantization=PRECISIONS[key])

    @Slot(int)
    def _choose_context(self, value: int) -> None:
        self._session.change_settings(context=self._tokens(value))

    @Slot(str)
    def _choose_cache(self, key: str) -> None:
        self._session.change_settings(kv=CACHES[key][0])

    @Slot(bool)
    def _choose_disk(self, allowed: bool) -> None:
        self._session.set_limit(DISK, None if allowed else 0)

    def _choose_limit(self, place: str, limit: int | None) -> None:
        self._session.set_limit(place, limit)

    def _forget(self, place: str, _checked: bool = False) -> None:
        self._session.set_limit(place, None)

    # -- what the session says -----------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not isinstance(event, LayerRan | TextProduced | MemoryMeasured | LoadProgressed | LayerPlaced):
            self._update()

    def _update(self) -> None:
        session, state = self._session, self._session.state
        machine, model = session.machine, state.model
        if machine is None:
            return
        self._update_places(machine)
        self.strategies.setVisible(bool(machine.accelerators) and model is not None)
        if model is None:
            return
        self.setEnabled(not session.busy)
        self._update_absent()
        reason = f"The files are quantised already ({model.quantization})." if model.quantization else ""
        for key in ("int8", "nf4"):
            self._precision.allow(key, reason)
        width = 32 if model.dtype == "float32" else 16
        self._precision.button("full").setText("As it is" if model.quantization else f"{width}-bit")
        chosen = None if model.quantization else session.settings.quantization
        self._precision.choose(_precision_key(chosen))
        self._precision_note.setText(reason or (_precision_words(state.plan) if state.plan else ""))
        self._update_context(state)
        self._update_cache(machine, model)
        self._update_shortfall(state)
        self.strategies.update_rows()
        self.reset.setVisible(session.is_by_hand)
        self.export.setEnabled(state.plan is not None)

    def _update_places(self, machine: Machine) -> None:
        limits, model = dict(self._session.limits), self._session.state.model
        rooms = [(each, *_room(each)) for each in machine.devices if each.id != DISK and not _pooled(each, machine)]
        key = tuple((device.id, device.name) for device, _, _ in rooms)
        if key != self._rooms:
            self._rooms = key
            for control in self._limits.values():
                self._places.removeWidget(control)
                control.deleteLater()
            self._limits = {
                device.id: LimitControl(device.name or device.id, most, left) for device, most, left in rooms
            }
            for place, control in self._limits.items():
                self._places.addWidget(control)
                control.changed.connect(partial(self._choose_limit, place))
        for device, most, left in rooms:
            self._limits[device.id].show_room(most, left)
            if self._limits[device.id].limit != limits.get(device.id):
                self._limits[device.id].show_limit(limits.get(device.id))
        self._disk.blockSignals(True)
        self._disk.setChecked(limits.get(DISK) != 0)
        self._disk.blockSignals(False)
        self._disk.setVisible(machine.has(DISK))
        quantized = bool(self._session.settings.quantization) and not (model and model.quantization)
        self._disk.setEnabled(not quantized)
        self._disk_note.setText("Quantised weights can’t be left on disk." if quantized else "")
        self._disk_note.setVisible(quantized)

    def _update_absent(self) -> None:
        """Limits for places of another machine: shown as absent, never used."""
        absent = self._session.absent_limits
        if absent == self._shown_absent:
            return
        self._shown_absent = absent
        while (item := self._absent.takeAt(0)) is not None:
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        limits = dict(self._session.limits)
        for place in absent:
            line = QWidget()
            forget = button("Forget", "quiet")
            forget.clicked.connect(partial(self._forget, place))
            words = f"{place} is not on this machine. Its limit of {short_size(limits[place])} is not used."
            said = label(words, "3", wrap=True)
            inner = row()
            inner.addWidget(said, 1)
            inner.addWidget(forget)
            line.setLayout(inner)
            self._absent.addWidget(line)

    def _update_context(self, state: State) -> None:
        longest = _longest(state)
        self._context.blockSignals(True)
        self._context.setRange(0, self._step(longest))
        current = self._session.context
        if self._tokens(self._context.value()) != current:
            self._context.setValue(self._step(current))
        self._context.blockSignals(False)
        self._context_value.setText(f"{current:,} tokens")
        cache = sum(use.kv for use in state.plan.prediction.places) if state.plan else 0
        room = f"{short_size(cache)} of KV cache. " if cache else ""
        known = state.model is not None and state.model.context_length is not None
        self._context_note.setText(f"{room}{longest:,} is the model’s longest" if known else room.strip())

    def _update_cache(self, machine: Machine, model: Model) -> None:
        """Only where model and machine can keep keys and values in something else."""
        can = model.shape is not None and not why_not(model.shape, machine)
        self._cache_rows.setVisible(can)
        kept, plan = self._session.settings.kv, self._session.state.plan
        self._cache.choose(next((key for key, (kv, _) in CACHES.items() if kv == kept), "full"))
        self._cache_note.setText(next((words for words in plan.notes if "KV cache" in words), "") if plan else "")
        self._cache_note.setVisible(bool(self._cache_note.text()))

    def _tokens(self, value: int) -> int:
        """Eight steps for each doubling, from `SHORTEST` up."""
        longest = _longest(self._session.state)
        if longest <= SHORTEST:
            return longest
        whole, eighth = divmod(value, 8)
        doubled: int = SHORTEST * 2**whole
        return min(longest, doubled + doubled * eighth // 8)

    def _step(self, tokens: int) -> int:
        """The slider's position for a number of tokens: the last whose tokens are not more, or the next beyond."""
        value = 0
        while self._tokens(value) < tokens:
            value += 1
        return value

    def _update_shortfall(self, state: State) -> None:
        problem, plan = self._session.problem, state.plan
        words = ""
        if problem is not None:
            words = f"{problem.title}: {problem.message} {problem.hint}"
        elif plan is not None and not plan.fits:
            tight = [use for use in plan.prediction.places if use.over]
            words = " ".join(
                f"{plan.machine.device(use.place).name} needs {short_size(use.used)} and may use"
                f" {short_size(use.capacity)}: {short_size(use.over)} are missing."
                for use in tight
            )
        self._shortfall.setText(words)
        self._shortfall.setVisible(bool(words))
        fits = plan is not None and plan.fits
        self._ties.setText(self._kind_of_plan() if fits else "Move a lever until it fits.")
        retone(self._ties, "tone", "3")

    def _kind_of_plan(self) -> str:
        session, strategy = self._session, self._session.strategy
        if strategy == "by-hand":
            return "Every layer is where you put it."
        if strategy in ENGINE_STRATEGIES:
            followed = session.state.plan is not None and session.state.plan.wishes.strategy == strategy
            return (
                f"As accelerate’s “{strategy}” places them." if followed else "The fastest, until accelerate answers."
            )
        pins = len(session.planning.pins)
        by_hand = f" beside {plural(pins, 'layer')} placed by hand" if pins else ""
        if strategy == "most-on-gpu":
            return f"As much as fits is on accelerators{by_hand}."
        return f"The fastest plan found within these limits{by_hand}."


def _longest(state: State) -> int:
    """Tokens that the model was made for; where nobody knows, as many as most models of today."""
    return (state.model.context_length if state.model else None) or 131072


def _pooled(device: Device, machine: Machine) -> bool:
    """RAM that an accelerator shares: one pool, one lever."""
    return any(each.shares_memory_with == device.id for each in machine.devices)


def _room(device: Device) -> tuple[int, int]:
    """(bytes the plan may use without a limit, bytes kept free)."""
    margin = memory.margin(device)
    size = device.free if device.free is not None else device.total
    return max(0, (size or 0) - margin), margin


def _precision_key(quantization: str | None) -> str:
    """The button that stands for a quantisation: all of 4 bit share one, and the note below names which it is."""
    if quantization in FOUR_BIT:
        return "nf4"
    return next((key for key, value in PRECISIONS.items() if value == quantization), "full")


def _precision_words(plan: Plan) -> str:
    total = sum(placement.size for placement in plan.placements)
    words = f"{short_size(total)} of weights in {plan.wishes.quantization or plan.dtype}"
    if not plan.wishes.quantization:
        return words
    kept = [
        placement for placement in plan.placements if placement.dtype != plan.wishes.quantization and placement.size
    ]
    kinds = {plan.model.layer(placement.layer).kind for placement in kept} - {LayerKind.NORM}
    names = " and ".join(sorted(str(kind.value) for kind in kinds))
    return f"{words}; {names or 'nothing'} stays in {plan.dtype}"
