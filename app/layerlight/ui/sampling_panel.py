"""How the next token is chosen, and what the model is told before the chat."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QDoubleSpinBox, QFrame, QGridLayout, QPlainTextEdit, QSpinBox, QWidget

from layerlight.core.sampling import MOST_DRAFTED
from layerlight.core.state import State
from layerlight.ui.controls import column, label
from layerlight.ui.happenings import SettingsChanged
from layerlight.ui.session import Session

_LOOKUP = (
    "So many tokens are guessed from the text so far and checked in one pass. Faster where an answer repeats its prompt"
    " and layers are read from disk, slower where nothing repeats."
    " In half precision, where two tokens are as good as equally likely, it may take the other one."
)


class SamplingPanel(QFrame):
    """Each field holds what a request can really use: values out of range can't be typed."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("card")
        self._session = session
        chosen = session.settings
        self.temperature = _decimal(0.0, 5.0, 0.1, chosen.temperature, "greedy")
        self.top_p = _decimal(0.01, 1.0, 0.05, chosen.top_p)
        self.top_k = _whole(0, 1000, chosen.top_k, "off")
        self.repetition = _decimal(0.5, 2.0, 0.05, chosen.repetition_penalty)
        self.longest = _whole(1, 1_000_000, chosen.max_new_tokens)
        self.seed = _whole(-1, 2**31 - 1, -1 if chosen.seed is None else chosen.seed, "new each time")
        self.drafted = _whole(0, MOST_DRAFTED, chosen.prompt_lookup, "off")
        self.system = QPlainTextEdit(chosen.system)
        self.system.setFixedHeight(56)
        self.system.setPlaceholderText("What the model is told before the chat")
        self.system.setTabChangesFocus(True)
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        fields: tuple[tuple[str, QWidget, str], ...] = (
            ("Temperature", self.temperature, "0 always takes the likeliest token; higher is freer."),
            ("Top p", self.top_p, "Only the likeliest tokens that together reach this share."),
            ("Top k", self.top_k, "Only this many of the likeliest tokens."),
            ("Repetition", self.repetition, "Above 1, tokens that were there already become less likely."),
            ("Longest answer", self.longest, "In tokens."),
            ("Seed", self.seed, "The same seed and settings give the same answer."),
            ("Prompt lookup", self.drafted, _LOOKUP),
        )
        for i, (name, widget, hint) in enumerate(fields):
            line, side = divmod(i, 2)
            said = label(name, "3")
            widget.setToolTip(hint)
            widget.setAccessibleName(name)
            grid.addWidget(said, line * 2, side)
            grid.addWidget(widget, line * 2 + 1, side)
        self.system.setAccessibleName("System prompt")
        self.setLayout(column(grid, label("System prompt", "3"), self.system, margins=(12, 10, 12, 12), gap=6))
        for each in (self.temperature, self.top_p, self.top_k, self.repetition, self.longest, self.seed, self.drafted):
            each.valueChanged.connect(self._change)
        self.system.textChanged.connect(self._change)
        session.changed.connect(self._changed)

    @Slot()
    def _change(self) -> None:
        self._session.change_settings(
            temperature=round(self.temperature.value(), 3),
            top_p=round(self.top_p.value(), 3),
            top_k=self.top_k.value(),
            repetition_penalty=round(self.repetition.value(), 3),
            max_new_tokens=self.longest.value(),
            seed=None if self.seed.value() < 0 else self.seed.value(),
            prompt_lookup=self.drafted.value(),
            system=self.system.toPlainText(),
        )

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if isinstance(event, SettingsChanged):
            seed = self._session.settings.seed
            self.seed.blockSignals(True)
            self.seed.setValue(-1 if seed is None else seed)
            self.seed.blockSignals(False)


def _decimal(least: float, most: float, step: float, value: float, zero: str = "") -> QDoubleSpinBox:
    box = QDoubleSpinBox()
    box.setDecimals(2)
    box.setRange(least, most)
    box.setSingleStep(step)
    box.setValue(value)
    if zero:
        box.setSpecialValueText(zero)
    return box


def _whole(least: int, most: int, value: int, least_words: str = "") -> QSpinBox:
    box = QSpinBox()
    box.setRange(least, most)
    box.setValue(value)
    if least_words:
        box.setSpecialValueText(least_words)
    return box
