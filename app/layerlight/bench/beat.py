"""The even beat of a window's event loop, and the gaps in it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QWidget

INTERVAL = 10
"""ms between two beats."""


class Beat(QObject):
    """Beats on the UI thread and keeps the gaps between beats in ms, by phase.

    A gap is net: what the thread itself waited for a processor (Linux tells it in schedstat) is taken off, because
    that is the machine's doing, not the window's.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.gaps: dict[str, list[float]] = {}
        self.phase = "idle"
        self._waited = Waited()
        self._last = (time.perf_counter(), self._waited.seconds())
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(INTERVAL)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def enter(self, phase: str) -> None:
        """What follows counts as this phase, the gap that is open now too."""
        self.phase = phase

    @Slot()
    def _beat(self) -> None:
        now = (time.perf_counter(), self._waited.seconds())
        elapsed, waited = now[0] - self._last[0], now[1] - self._last[1]
        self.gaps.setdefault(self.phase, []).append(max(0.0, elapsed - waited) * 1000)
        self._last = now


class Waited:
    """Seconds this thread has waited for a processor since it began; always 0 where the system doesn't tell."""

    def __init__(self) -> None:
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._file = path.open(encoding="ascii") if path.exists() else None

    def seconds(self) -> float:
        if self._file is None:
            return 0.0
        self._file.seek(0)
        return int(self._file.read().split()[1]) / 1e9


class FirstPaint(QObject):
    """Notes when a window was painted for the first time: seconds since `began` (time.time())."""

    def __init__(self, window: QWidget, began: float) -> None:
        super().__init__(window)
        self.seconds: float | None = None
        self._began = began
        window.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and self.seconds is None:
            QTimer.singleShot(0, self, self._painted)
        return False

    @Slot()
    def _painted(self) -> None:
        """Runs after the event that painted the window and all that lies in it."""
        if self.seconds is None:
            self.seconds = time.time() - self._began
