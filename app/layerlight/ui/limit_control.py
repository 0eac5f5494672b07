"""A limit: how much of a place the plan may use, by slider or typed."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QSizePolicy, QSlider

from layerlight.core.device import parse_size
from layerlight.core.errors import BadSize
from layerlight.ui.controls import Elided, column, label, retone
from layerlight.ui.words import short_size

STEPS = 400


class LimitControl(QFrame):
    """`changed` carries bytes, or None when the limit is taken away; live while the slider moves or a size is typed."""

    changed = Signal(object)

    def __init__(self, name: str, most: int, margin: int) -> None:
        """`most` is what the plan may use without a limit, `margin` what stays free beside it, both in bytes."""
        super().__init__()
        self._name, self._most, self._margin = name, max(1, most), margin
        self._limit: int | None = None
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(0, STEPS)
        self._slider.setPageStep(20)
        self._slider.setAccessibleName(f"{name} may use")
        self._field = QLineEdit()
        self._field.setProperty("kind", "bare")
        self._field.setProperty("wrong", "false")
        self._field.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._field.setFixedWidth(112)
        self._field.setAccessibleName(f"{name} may use, as a size")
        self._field.setToolTip("Type a size such as 6GiB, 6000MB or a number of bytes; empty takes the limit away.")
        self._note = label("", "3", wrap=True)
        self._note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        head = QHBoxLayout()
        head.addWidget(Elided(f"{name} may use"), 1)
        head.addWidget(self._field)
        self.setLayout(column(head, self._slider, self._note, gap=2))
        self._slider.valueChanged.connect(self._moved)
        self._field.textEdited.connect(self._typed)
        self._field.editingFinished.connect(self._finished)
        self.show_limit(None)

    @property
    def slider(self) -> QSlider:
        return self._slider

    @property
    def field(self) -> QLineEdit:
        return self._field

    @property
    def note(self) -> str:
        return self._note.text()

    @property
    def limit(self) -> int | None:
        return self._limit

    def show_room(self, most: int, margin: int) -> None:
        """New bounds, as when memory was measured again."""
        if (max(1, most), margin) != (self._most, self._margin):
            self._most, self._margin = max(1, most), margin
            self.show_limit(self._limit)

    def show_limit(self, limit: int | None) -> None:
        """Shows a limit without telling anyone."""
        self._limit = limit
        shown = self._most if limit is None else limit
        self._slider.blockSignals(True)
        if self._of_slider(self._slider.value()) != limit:
            self._slider.setValue(min(STEPS, round(shown / self._most * STEPS)))
        self._slider.blockSignals(False)
        if not self._field.hasFocus():
            self._field.setText(short_size(shown))
        self._say(limit)

    def _of_slider(self, value: int) -> int | None:
        return None if value == STEPS else round(self._most * value / STEPS)

    def _moved(self, value: int) -> None:
        self._limit = self._of_slider(value)
        self._field.setText(short_size(self._most if self._limit is None else self._limit))
        self._say(self._limit)
        self.changed.emit(self._limit)

    def _typed(self, words: str) -> None:
        """Checked with every key, so that no load ever starts from a size that can't be read."""
        if not words.strip():
            self._take(None)
            return
        try:
            size = parse_size(words)
        except BadSize as failure:
            retone(self._field, "wrong", "true")
            self._say_wrong(f"{failure.message} {failure.hint}")
            return
        self._take(size)

    def _take(self, limit: int | None) -> None:
        self._limit = limit
        self._slider.blockSignals(True)
        self._slider.setValue(STEPS if limit is None else min(STEPS, round(limit / self._most * STEPS)))
        self._slider.blockSignals(False)
        self._say(limit, typed=True)
        self.changed.emit(limit)

    def _finished(self) -> None:
        """What can't be read gives way to the limit that holds."""
        self._field.setText(short_size(self._most if self._limit is None else self._limit))
        self._say(self._limit)

    def _say(self, limit: int | None, typed: bool = False) -> None:
        retone(self._field, "wrong", "false")
        retone(self._note, "tone", "3")
        if limit is None:
            margin = f"{short_size(self._margin)} stays free as a margin" if self._margin else "All that is free"
            self._note.setText(margin)
        elif limit == 0:
            self._note.setText("Not used at all")
        elif typed:
            more = "" if limit <= self._most else f"; only {short_size(self._most)} can be used now"
            self._note.setText(f"{limit:,} bytes{more}")
        else:
            self._note.setText(f"{limit:,} bytes of {short_size(self._most)}")

    def _say_wrong(self, words: str) -> None:
        retone(self._note, "tone", "bad")
        self._note.setText(words)
