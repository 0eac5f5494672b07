"""The even beat of a window's event loop, and the gaps in it."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from layerlight.bench.stalls import Stalls

INTERVAL = 10
"""ms between two beats."""
WORTH_TELLING = 15.0
"""ms: of longer gaps it is kept what they were made of."""
STEAL = 8
"""The word of /proc/stat's first line that counts stolen time."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A long gap, in ms: net, what the thread itself computed, and what it waited for a processor."""

    phase: str
    net: float
    computed: float
    waited: float
    stacks: str


class Beat(QObject):
    """Beats on the UI thread and keeps the gaps between beats in ms, by phase.

    A gap is net: what the thread itself waited for a processor (Linux tells it in schedstat) is taken off, because
    that is the machine's doing, not the window's. Time that a hypervisor steals is told beside it, never taken off.
    """

    def __init__(self, parent: QObject, stalls: Stalls | None = None) -> None:
        """With `stalls` it keeps what ran in long gaps too, which itself takes a little time."""
        super().__init__(parent)
        self.gaps: dict[str, list[float]] = {}
        self.long: list[Gap] = []
        """Gaps worth telling."""
        self.phase = "idle"
        self._stalls = stalls
        self._clocks = Clocks()
        self._last = self._clocks.read()
        self._stolen = stolen()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(INTERVAL)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    @property
    def stolen(self) -> float:
        """Seconds that other guests of the same host took from all processors since it began."""
        return stolen() - self._stolen

    def enter(self, phase: str) -> None:
        """What follows counts as this phase, the gap that is open now too."""
        self.phase = phase

    @Slot()
    def _beat(self) -> None:
        now = self._clocks.read()
        elapsed, computed, waited = (1000 * (a - b) for a, b in zip(now, self._last, strict=True))
        net = max(0.0, elapsed - waited)
        self.gaps.setdefault(self.phase, []).append(net)
        stacks = self._stalls.since_armed() if self._stalls is not None else ""
        if net > WORTH_TELLING:
            self.long.append(Gap(self.phase, net, computed, waited, stacks))
        self._last = now
        if self._stalls is not None:
            self._stalls.arm()


class Clocks:
    """Of this thread, in seconds; what the system doesn't tell stays 0."""

    def __init__(self) -> None:
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._schedule = path.open(encoding="ascii") if path.exists() else None

    def read(self) -> tuple[float, float, float]:
        """(now, computed, waited for a processor)."""
        return time.perf_counter(), time.thread_time(), self._waited()

    def _waited(self) -> float:
        if self._schedule is None:
            return 0.0
        self._schedule.seek(0)
        return int(self._schedule.readline().split()[1]) / 1e9


def stolen() -> float:
    """Seconds taken from all processors by other guests since the system started; 0 where nobody tells."""
    path = Path("/proc/stat")
    words = path.read_text("ascii").split("\n", 1)[0].split() if path.exists() else []
    return int(words[STEAL]) / os.sysconf("SC_CLK_TCK") if len(words) > STEAL else 0.0


class FirstPaint(QObject):
    """Notes when a window was painted for the first time: seconds since `began` (time.time())."""

    noted = Signal()

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
            self.noted.emit()
