"""A reveal: the parts of a page are painted one by one the first time, for their first paint takes long."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QWidget


class Reveal(QObject):
    """Keeps parts unpainted, in their places, and lets them be painted in turns of the event loop, one in each."""

    def __init__(self, page: QWidget, parts: Iterable[QWidget]) -> None:
        """`parts` of `page` in the order they are to be seen; the page itself is painted at once."""
        super().__init__(page)
        self._parts = list(parts)
        for part in self._parts:
            part.setUpdatesEnabled(False)
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._show_next)
        self._timer.start()

    @Slot()
    def _show_next(self) -> None:
        if self._parts:
            self._parts.pop(0).setUpdatesEnabled(True)
        else:
            self._timer.stop()
            self.deleteLater()
