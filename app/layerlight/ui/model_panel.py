"""The left panel: the model's facts, and a card for each device."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl, Slot
from PySide6.QtGui import QContextMenuEvent, QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QMenu, QScrollArea, QVBoxLayout, QWidget

from layerlight.core.messages import LayerRan, TextProduced
from layerlight.core.model import LayerKind, Model
from layerlight.core.state import State
from layerlight.ui.controls import Elided, button, column, label, row, rule
from layerlight.ui.device_card import DeviceCard
from layerlight.ui.lanes import shown_plan
from layerlight.ui.session import Session
from layerlight.ui.words import count, plural, short_size

WIDTH = 280
USUAL_FACTS = 10


class ModelPanel(QFrame):
    """What is opened, and the machine it meets."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("panel")
        self._session = session
        self._prefer_next = False
        self._here = True
        """Whether the cards are of this machine."""
        self._shown: tuple[tuple[str, str], ...] = ()
        self._cards: list[DeviceCard] = []
        self._name = Elided("", size=20, weight=600)
        self._facts = QGridLayout()
        self._facts.setContentsMargins(0, 0, 0, 0)
        self._facts.setVerticalSpacing(5)
        self._facts.setHorizontalSpacing(8)
        self._facts.setColumnStretch(1, 1)
        self._rows: list[tuple[QLabel, Elided]] = []
        for _ in range(USUAL_FACTS):
            self._add_row()
        self._devices = QVBoxLayout()
        self._devices.setSpacing(8)
        self._warnings = label("", "3", wrap=True)
        again = button("Look at this machine again", "link")
        again.clicked.connect(session.survey)
        self.measure = button("", "link", "At most 15 s, and it can be stopped")
        self.measure.clicked.connect(session.calibrate)
        self._where = label("This machine", "head", wrap=True)
        inner = QWidget()
        inner.setLayout(
            column(
                label("Model", "head"), self._name, self._facts, 8, rule(), 8, self._where,
                self._devices, self._warnings, None, margins=(16, 16, 16, 8),
            )
        )  # fmt: skip
        area = QScrollArea()
        area.setWidget(inner)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.viewport().setAutoFillBackground(False)
        inner.setAutoFillBackground(False)
        outer = column(gap=0)
        outer.addWidget(area, 1)
        outer.addLayout(column(self.measure, row(again, None), margins=(16, 4, 16, 12), gap=4))
        self.setLayout(outer)
        session.changed.connect(self._changed)
        session.watch.seen.connect(self._update_watch)
        self._update()

    @property
    def cards(self) -> list[DeviceCard]:
        return self._cards

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return self._shown

    @property
    def text(self) -> str:
        """The model's name and facts, and what each device holds, as lines."""
        model = self._session.state.model
        head = [model.name or model.folder] if model is not None else []
        facts = [f"{name}: {value}" for name, value in self._shown]
        return "\n".join([*head, *facts, *(card.accessibleName() for card in self._cards)])

    @Slot()
    def copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text)
        self._session.notify("The facts are on the clipboard.")

    @Slot()
    def show_folder(self) -> None:
        """In the system's own file manager."""
        model = self._session.state.model
        if model is not None and model.folder:
            QDesktopServices.openUrl(QUrl.fromLocalFile(model.folder))

    def menu(self, card: DeviceCard | None = None) -> QMenu:
        """What can be done with the facts, and with a device's."""
        menu, model = QMenu(self), self._session.state.model
        if card is not None:
            words = card.accessibleName()
            menu.addAction(f"Copy what {card.lane.title} holds", lambda: QGuiApplication.clipboard().setText(words))
        menu.addAction("Copy all facts", self.copy)
        if model is not None and model.folder:
            folder = model.folder
            menu.addSeparator()
            menu.addAction("Copy the folder’s path", lambda: QGuiApplication.clipboard().setText(folder))
            menu.addAction("Show the folder", self.show_folder)
        return menu

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        under: QWidget | None = self.childAt(event.pos())
        while under is not None and not isinstance(under, DeviceCard):
            under = under.parentWidget()
        menu = self.menu(under)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def prefer_next(self, prefer: bool) -> None:
        if prefer != self._prefer_next:
            self._prefer_next = prefer
            self._update()

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not isinstance(event, LayerRan | TextProduced):
            self._update()

    def _update(self) -> None:
        state = self._session.state
        plan = shown_plan(state, self._prefer_next)
        model = plan.model if plan is not None else state.model
        loaded_as = plan.wishes.quantization or plan.dtype if plan is not None else ""
        facts = facts_of(model, loaded_as) if model is not None else ()
        if facts != self._shown:
            self._shown = facts
            self._name.say(model.name or model.folder if model else "")
            self._write_facts(facts)
        lanes = self._session.lanes(self._prefer_next)
        here = self._session.elsewhere is None or (plan is not None and plan is state.loaded_plan)
        if here != self._here:
            self._here = here
            self._update_watch()
        if [card.lane.place for card in self._cards] != [lane.place for lane in lanes]:
            self._rebuild_cards()
        for card, lane in zip(self._cards, lanes, strict=True):
            if card.lane != lane:
                card.show_lane(lane)
        self._update_machine()
        words = " ".join(state.machine.warnings) if state.machine else ""
        if words != self._warnings.text():
            self._warnings.setText(words)
        self._warnings.setVisible(bool(words))

    def _update_machine(self) -> None:
        session = self._session
        elsewhere = session.elsewhere
        self._where.setText("This machine" if elsewhere is None else f"Would be: {elsewhere.title}")
        what = "it again" if session.is_calibrated else "this machine"  # as long as the narrowest panel is wide
        self.measure.setText(f"Measure {what} (at most 15 s)")
        self.measure.setEnabled(session.can_calibrate)

    def _rebuild_cards(self) -> None:
        for card in self._cards:
            self._devices.removeWidget(card)
            card.deleteLater()
        self._cards = [DeviceCard(lane) for lane in self._session.lanes(self._prefer_next)]
        for card in self._cards:
            self._devices.addWidget(card)
        self._update_watch()

    @Slot()
    def _update_watch(self) -> None:
        """Nothing is seen of a machine that is elsewhere."""
        watch = self._session.watch
        for card in self._cards:
            place = card.lane.place
            if self._here:
                card.show_watch(watch.samples(place), watch.facts(place), watch.warning(place))
            else:
                card.show_watch()

    def _write_facts(self, facts: tuple[tuple[str, str], ...]) -> None:
        """Into rows that are there already: making them takes longer than all the rest."""
        while len(self._rows) < len(facts):
            self._add_row()
        for i, (name, value) in enumerate(self._rows):
            there = i < len(facts)
            if there:
                name.setText(facts[i][0])
                value.say(facts[i][1])
            name.setVisible(there)
            value.setVisible(there)

    def _add_row(self) -> None:
        row_of = label("", "3"), Elided("", size=12)
        for column_of, each in enumerate(row_of):
            each.hide()
            self._facts.addWidget(each, len(self._rows), column_of)
        self._rows.append(row_of)


def facts_of(model: Model, loaded_as: str = "") -> tuple[tuple[str, str], ...]:
    """(name, value) of what people ask about a model first."""
    facts = [("Kind", model.kind.value), ("Architecture", model.architecture or "unknown")]
    if model.parameters:
        facts.append(("Parameters", count(model.parameters)))
    decoders = [layer for layer in model.layers if layer.kind is LayerKind.DECODER]
    if decoders:
        facts.append(("Layers", f"{len(decoders)} × {count(decoders[0].parameters)}"))
    shape = model.shape
    if shape is not None:
        facts.append(("Attention", f"{shape.heads} heads, {shape.key_value_heads} for KV"))
        if shape.experts:
            facts.append(("Experts", f"{shape.experts}, {shape.experts_per_token or '?'} a token"))
    if model.size and _is_here(model):
        facts.append(("On disk", f"{short_size(model.size)}, {plural(len(model.files) or 1, 'file')}"))
    elif model.size:
        facts.append(("Weights", f"{short_size(model.size)}, not on this machine"))
    stored = model.quantization or model.dtype
    if stored:
        facts.append(("Stored as", stored))
    if loaded_as:
        facts.append(("Loaded as", loaded_as))
    if model.context_length:
        facts.append(("Made for", f"{model.context_length:,} tokens"))
    return tuple(facts)


def _is_here(model: Model) -> bool:
    """Whether its sizes were read from files in its folder, not worked out from a config."""
    return bool(model.folder) and all(tensor.file for layer in model.layers for tensor in layer.tensors)
