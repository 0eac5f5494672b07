"""Three panes beside each other: the middle one grows with the window, the others are as wide as a person likes."""

from __future__ import annotations

import re

from PySide6.QtCore import QEvent, QRect, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QEnterEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QStyle, QWidget

from layerlight.ui.controls import rule
from layerlight.ui.palette import theme_of

PAUSE = 300
"""ms after the last pull at a handle until the widths are told."""
HIDDEN = "hidden"
NARROWEST = 360
"""px of the middle pane."""
GRIP = 7
"""px in which a line between two panes can be taken hold of."""


class Panes(QWidget):
    """Lays them out itself. Qt's splitter asks each pane for its size while it is put together, which styles all that
    is in them at once; fixed widths in a layout would keep the window from becoming narrower."""

    kept = Signal(str)
    """The widths, for the settings."""

    def __init__(self, left: QWidget, middle: QWidget, right: QWidget, least: tuple[int, int], state: str = "") -> None:
        """`least` are the px that left and right take at least; twice that is the most. `state` is what `kept` told
        before; what can't be read of it is left out."""
        super().__init__()
        self._left, self._middle, self._right, self._least = left, middle, right, least
        self._wanted = _read(state) or least
        self._hidden = state.endswith(HIDDEN)
        self._rules = (rule(vertical=True), rule(vertical=True))
        for each in (left, middle, right, *self._rules):
            each.setParent(self)
        left.setHidden(self._hidden)
        self.handles = (Handle(self), Handle(self))
        self._before = self._wanted
        """The widths when a handle was taken hold of."""
        for handle, pull in zip(self.handles, (self._pull_left, self._pull_right), strict=True):
            handle.taken.connect(self._remember)
            handle.pulled.connect(pull)
            handle.reset.connect(self._reset)
        self._telling = QTimer(self, singleShot=True, interval=PAUSE)
        self._telling.timeout.connect(self._tell)
        self._fit()

    @property
    def widths(self) -> tuple[int, int, int]:
        """px of left, middle and right; 0 of a hidden one."""
        return self._left.width() if not self._hidden else 0, self._middle.width(), self._right.width()

    @property
    def state(self) -> str:
        """The widths that are wished for the outer panes, and whether the left one is hidden."""
        left, right = self._wanted
        return f"{left},{right},{HIDDEN}" if self._hidden else f"{left},{right}"

    def widen_right(self, by: int) -> None:
        """By so many px, as far as the others let it."""
        self._want(self._wanted[0], self._right.width() + by)

    def toggle_left(self) -> None:
        """Hides the left pane, or shows it as wide as it was."""
        self._hidden = not self._hidden
        self._left.setVisible(not self._hidden)
        self._want(*self._wanted)

    @Slot()
    def _remember(self) -> None:
        self._before = self._wanted = self._fit()

    @Slot(int)
    def _pull_left(self, by: int) -> None:
        self._want(self._before[0] + by, self._wanted[1])

    @Slot(int)
    def _pull_right(self, by: int) -> None:
        self._want(self._wanted[0], self._before[1] - by)

    @Slot()
    def _reset(self) -> None:
        self._want(*self._least)

    def _want(self, left: int, right: int) -> None:
        self._wanted = left, right
        self._wanted = self._fit()
        self._telling.start()

    def _fit(self) -> tuple[int, int]:
        """Gives the outer panes what is wished, as far as there is room. Returns what they got."""
        room = max(sum(self._least), self.width() - NARROWEST - 2)
        beside = 0 if self._hidden else self._least[0]
        right = _within(self._wanted[1], self._least[1], room - beside)
        left = _within(self._wanted[0], self._least[0], room - right)
        shown = 0 if self._hidden else left
        end = self.width() - right
        self._place(self._left, 0, shown)
        self._place(self._rules[0], shown, 0 if self._hidden else 1)
        self._place(self._middle, shown + 1, end - shown - 2)
        self._place(self._rules[1], end - 1, 1)
        self._place(self._right, end, right)
        for handle, edge in zip(self.handles, (shown, end - 1), strict=True):
            self._place(handle, edge - GRIP // 2, GRIP)
            handle.raise_()
        self.handles[0].setHidden(self._hidden)
        return left, right

    def _place(self, pane: QWidget, left: int, width: int) -> None:
        """All of the height; mirrored where text runs from right to left."""
        where = QRect(left, 0, max(0, width), self.height())
        pane.setGeometry(QStyle.visualRect(self.layoutDirection(), self.rect(), where))

    def minimumSizeHint(self) -> QSize:
        return QSize(sum(self._least) + NARROWEST + 2, NARROWEST)

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()

    def resizeEvent(self, _event: QResizeEvent) -> None:
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.LayoutDirectionChange:
            self._fit()
        super().changeEvent(event)

    @Slot()
    def _tell(self) -> None:
        self.kept.emit(self.state)


class Handle(QWidget):
    """Lies over a line between two panes."""

    taken = Signal()
    pulled = Signal(int)
    """px since it was taken hold of, towards the end of a line of text."""
    reset = Signal()
    """A double click: the usual widths are wanted."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.SplitHCursor)
        self.setToolTip("Pull it to change the widths; a double click gives the usual ones")
        self._from: float | None = None
        self._lit = False

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._from = event.globalPosition().x()
            self.taken.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._from is not None:
            by = round(event.globalPosition().x() - self._from)
            self.pulled.emit(-by if self.isRightToLeft() else by)

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        self.reset.emit()

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        self._from = None

    def enterEvent(self, _event: QEnterEvent) -> None:
        self._light(True)

    def leaveEvent(self, _event: QEvent) -> None:
        self._light(False)

    def _light(self, lit: bool) -> None:
        self._lit = lit
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._lit:
            QPainter(self).fillRect(GRIP // 2 - 1, 0, 3, self.height(), QColor(theme_of(self).edge))


def _within(wanted: int, least: int, room: int) -> int:
    """At least `least`, at most twice that, and no more than there is room for."""
    return max(least, min(wanted, 2 * least, room))


def _read(state: str) -> tuple[int, int] | None:
    """(left, right) in px, where they are told."""
    found = re.match(r"(\d{1,5}),(\d{1,5})\b", state, re.ASCII)
    return (int(found[1]), int(found[2])) if found else None
