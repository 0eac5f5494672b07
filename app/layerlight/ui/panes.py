"""Three panes beside each other: the middle one grows with the window, the others are as wide as a person likes."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget

PAUSE = 300
"""ms after the last pull at a handle until the widths are told."""
HIDDEN = "hidden"
NARROWEST = 360
"""px of the middle pane."""


class Panes(QSplitter):
    """The handles are a line thin and can be pulled from some px beside it."""

    kept = Signal(str)
    """The widths, for the settings."""

    def __init__(self, left: QWidget, middle: QWidget, right: QWidget, state: str = "") -> None:
        """`state` is what `kept` told before; what can't be read of it is left out."""
        super().__init__(Qt.Orientation.Horizontal)
        self._left, self._right = left, right
        self._wanted = _read(state)
        self._placed = False
        for each in (left, middle, right):
            self.addWidget(each)
        self.setStretchFactor(1, 1)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)
        middle.setMinimumWidth(NARROWEST)
        left.setVisible(not state.endswith(HIDDEN))
        self._telling = QTimer(self, singleShot=True, interval=PAUSE)
        self._telling.timeout.connect(self._tell)
        self.splitterMoved.connect(self._telling.start)

    @property
    def state(self) -> str:
        """The widths of the outer panes, and whether the left one is hidden."""
        left, _, right = self.sizes()
        if not self._left.isHidden():
            return f"{left},{right}"
        return f"{self._wanted[0]},{right},{HIDDEN}"

    def widen_right(self, by: int) -> None:
        """By so many px, as far as the others let it."""
        left, middle, right = self.sizes()
        most = min(self._right.maximumWidth(), middle + right - NARROWEST)
        wide = max(self._right.minimumWidth(), min(most, right + by))
        self.setSizes([left, middle + right - wide, wide])
        self._telling.start()

    def toggle_left(self) -> None:
        """Hides the left pane, or shows it as wide as it was."""
        left, middle, right = self.sizes()
        shown = self._left.isHidden()
        if not shown:
            self._wanted = (left, right)
        self._left.setVisible(shown)
        if shown:
            left = max(self._wanted[0], self._left.minimumWidth())
            self.setSizes([left, middle - left, right])
        self._telling.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self._placed and self.width() > NARROWEST:
            self._placed = True
            self._place()

    def _place(self) -> None:
        """The widths that are wished, as far as there is room; the least where nothing is."""
        sides = [
            max(pane.minimumWidth(), min(pane.maximumWidth(), wanted))
            for pane, wanted in zip((self._left, self._right), self._wanted, strict=True)
        ]
        shown = 0 if self._left.isHidden() else sides[0]
        self.setSizes([shown, max(NARROWEST, self.width() - shown - sides[1] - 2), sides[1]])

    @Slot()
    def _tell(self) -> None:
        self.kept.emit(self.state)


def _read(state: str) -> tuple[int, int]:
    """(left, right) in px, 0 for what isn't known."""
    found = re.match(r"(\d{1,5}),(\d{1,5})\b", state, re.ASCII)
    return (int(found[1]), int(found[2])) if found else (0, 0)
