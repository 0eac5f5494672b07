"""Small controls that every panel is put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QRadioButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from layerlight.ui.palette import Theme, theme_of
from layerlight.ui.theme import font

Item = QWidget | QLayout | int | None
"""What goes into a row or a column: a widget, a layout, a gap in px, or None for a stretch."""


def label(words: str = "", tone: str = "", size: int = 0, weight: int = 400, wrap: bool = False) -> QLabel:
    """Plain text. `tone` is `2`, `3`, `head`, `bad` or `mono`; a size (of `theme.SIZES`) overrides the tone's."""
    result = QLabel(words)
    result.setTextFormat(Qt.TextFormat.PlainText)
    result.setProperty("tone", tone)
    result.setWordWrap(wrap)
    _set_type(result, size, weight)
    return result


def _set_type(words: QLabel, size: int, weight: int) -> None:
    """By properties that the one style sheet knows: a sheet of its own for each label takes ten times as long."""
    if size:
        words.setProperty("px", size)
        words.setProperty("weight", weight)


def button(words: str, kind: str = "", hint: str = "") -> QPushButton:
    """A button; `kind` is `primary`, `quiet`, `link` or `seg`."""
    result = QPushButton(words)
    result.setProperty("kind", kind)
    result.setAutoDefault(False)
    if hint:
        result.setToolTip(hint)
    return result


def retone(widget: QWidget, name: str, value: object) -> None:
    """Sets a property that the style sheet looks at, and lets the style see it."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def row(*items: Item, margins: tuple[int, int, int, int] = (0, 0, 0, 0), gap: int = 8) -> QHBoxLayout:
    box = QHBoxLayout()
    _fill(box, items, margins, gap)
    return box


def column(*items: Item, margins: tuple[int, int, int, int] = (0, 0, 0, 0), gap: int = 8) -> QVBoxLayout:
    box = QVBoxLayout()
    _fill(box, items, margins, gap)
    return box


def _fill(box: QBoxLayout, items: Sequence[Item], margins: tuple[int, int, int, int], gap: int) -> None:
    box.setContentsMargins(*margins)
    box.setSpacing(gap)
    for item in items:
        if item is None:
            box.addStretch(1)
        elif isinstance(item, int):
            box.addSpacing(item)
        elif isinstance(item, QLayout):
            box.addLayout(item)
        else:
            box.addWidget(item)


def framed(layout: QLayout, kind: str = "panel") -> QFrame:
    """A frame around a layout: `panel`, `card`, `bubble` or `seg`."""
    frame = QFrame()
    frame.setObjectName(kind)
    frame.setLayout(layout)
    return frame


def rule(vertical: bool = False) -> QFrame:
    line = QFrame()
    line.setObjectName("rule")
    if vertical:
        line.setFixedWidth(1)
    else:
        line.setFixedHeight(1)
    return line


class Painted(QWidget):
    """A widget of fixed height, drawn by a function of (painter, rectangle, theme)."""

    def __init__(self, height: int, draw: Callable[[QPainter, QRectF, Theme], None], width: int = 0) -> None:
        super().__init__()
        self._draw = draw
        self.setFixedHeight(height)
        if width:
            self.setFixedWidth(width)

    def paintEvent(self, _event: QPaintEvent) -> None:
        p = QPainter(self)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw(p, QRectF(self.rect()), theme_of(self))


class Segments(QFrame):
    """One choice of a few, as buttons in a row; arrow keys move between them."""

    chosen = Signal(str)

    def __init__(self, choices: Sequence[tuple[str, str]], name: str) -> None:
        """`choices` are (key, words); `name` is what a screen reader calls the group."""
        super().__init__()
        self.setObjectName("seg")
        self.setAccessibleName(name)
        self._group = QButtonGroup(self)
        self._buttons: dict[str, QPushButton] = {}
        inner = row(margins=(2, 2, 2, 2), gap=2)
        for key, words in choices:
            each = button(words, "seg")
            each.setCheckable(True)
            each.setAccessibleName(f"{name}: {words}")
            each.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            self._group.addButton(each)
            self._buttons[key] = each
            inner.addWidget(each)
        self.setLayout(inner)
        self._group.buttonClicked.connect(self._clicked)

    def choose(self, key: str) -> None:
        """Shows a choice without telling anyone."""
        self._buttons[key].setChecked(True)

    def current(self) -> str:
        return next(key for key, each in self._buttons.items() if each.isChecked())

    def allow(self, key: str, reason: str = "") -> None:
        """A reason greys the choice and says why; none makes it possible again."""
        self._buttons[key].setEnabled(not reason)
        self._buttons[key].setToolTip(reason)

    def allowed(self, key: str) -> bool:
        return self._buttons[key].isEnabled()

    def button(self, key: str) -> QPushButton:
        return self._buttons[key]

    def _clicked(self) -> None:
        self.chosen.emit(self.current())


class Check(QCheckBox):
    """A check box drawn in the window's own lines, so that it can be seen in both themes."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        p, t = QPainter(self), theme_of(self)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(1, self.height() / 2 - 8, 16, 16)
        on = self.isEnabled()
        p.setPen(QPen(QColor(t.ink if self.hasFocus() else t.edge), 2 if self.hasFocus() else 1))
        p.setBrush(QColor(t.ink if self.isChecked() and on else t.edge if self.isChecked() else t.panel))
        p.drawRoundedRect(box, 4, 4)
        if self.isChecked():
            p.setPen(QPen(QColor(t.on_ink), 2, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
            p.drawPolyline(
                [box.topLeft() + QPointF(4, 8.5), box.topLeft() + QPointF(7, 11.5), box.topLeft() + QPointF(12, 5)]
            )
        words = QRectF(26, 0, self.width() - 26, self.height())
        draw_words(p, words, self.text(), t.ink if on else t.ink3, 13)

    def sizeHint(self) -> QSize:
        return QSize(30 + self.fontMetrics().horizontalAdvance(self.text()), 22)

    def hitButton(self, at: QPoint) -> bool:
        return self.rect().contains(at)


class Radio(QRadioButton):
    """One of several choices, drawn like `Check`."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        p, t = QPainter(self), theme_of(self)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        ring = QRectF(1, self.height() / 2 - 8, 16, 16)
        on = self.isEnabled()
        p.setPen(QPen(QColor(t.ink if self.hasFocus() else t.edge), 2 if self.hasFocus() else 1))
        p.setBrush(QColor(t.panel))
        p.drawEllipse(ring)
        if self.isChecked():
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(QColor(t.ink if on else t.edge))
            p.drawEllipse(ring.adjusted(4, 4, -4, -4))
        words = QRectF(26, 0, self.width() - 26, self.height())
        draw_words(p, words, self.text(), t.ink if on else t.ink3, 13)

    def sizeHint(self) -> QSize:
        return QSize(30 + self.fontMetrics().horizontalAdvance(self.text()), 22)

    def hitButton(self, at: QPoint) -> bool:
        return self.rect().contains(at)


class Elided(QLabel):
    """One line that gives way in its middle when there is no room; the tooltip holds all of it."""

    def __init__(
        self,
        words: str = "",
        tone: str = "",
        size: int = 0,
        weight: int = 400,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideMiddle,
    ) -> None:
        super().__init__()
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("tone", tone)
        self._words = words
        _set_type(self, size, weight)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.say(words)

    def say(self, words: str) -> None:
        self._words = words
        self.setAccessibleName(words)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(24, super().minimumSizeHint().height())

    def resizeEvent(self, _event: QResizeEvent) -> None:
        self._fit()

    def _fit(self) -> None:
        shown = self.fontMetrics().elidedText(self._words, self._mode, max(24, self.width()))
        self.setToolTip(self._words if shown != self._words else "")
        if shown != self.text():
            self.setText(shown)


def draw_words(
    p: QPainter,
    rect: QRectF,
    words: str,
    colour: QColor | str,
    size: int = 12,
    weight: int = 400,
    align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
    mono: bool = False,
) -> None:
    """One line of text, centred in height."""
    p.setFont(font(size, weight, mono))
    p.setPen(QColor(colour))
    p.drawText(rect, int(align | Qt.AlignmentFlag.AlignVCenter), words)
