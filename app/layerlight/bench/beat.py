"""The even beat of a window's event loop, and the gaps in it."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QWidget

from layerlight.bench.stalls import Stalls

INTERVAL = 10
"""ms between two beats."""
WORTH_TELLING = 15.0
"""ms: of longer gaps it is kept what they were made of."""
STEAL = 8
"""The word of /proc/stat's first line that counts stolen time."""
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Gap:
    """A long gap, in ms: net, what the thread itself computed, waited for a processor, and what was stolen of all of
    them meanwhile by other guests of the same host."""

    phase: str
    net: float
    computed: float
    waited: float
    stolen: float
    stacks: str


class Beat(QObject):
    """Beats on the UI thread and keeps the gaps between beats in ms, by phase.

    A gap is net: what the thread itself waited for a processor (Linux tells it in schedstat) is taken off, because
    that is the machine's doing, not the window's. Time that a hypervisor steals is told beside it, not taken off.
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
        now = self._clocks.read()
        elapsed, computed, waited, stolen = (1000 * (a - b) for a, b in zip(now, self._last, strict=True))
        net = max(0.0, elapsed - waited)
        self.gaps.setdefault(self.phase, []).append(net)
        stacks = self._stalls.since_armed() if self._stalls is not None else ""
        if net > WORTH_TELLING:
            self.long.append(Gap(self.phase, net, computed, waited, stolen, stacks))
        self._last = now
        if self._stalls is not None:
            self._stalls.arm()


class Clocks:
    """Of this thread, in seconds; what the system doesn't tell stays 0."""

    def __init__(self) -> None:
        self._schedule = _opened(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat"))
        self._processors = _opened(Path("/proc/stat"))

    def read(self) -> tuple[float, float, float, float]:
        """(now, computed, waited for a processor, stolen from all processors by other guests)."""
        return time.perf_counter(), time.thread_time(), self._waited(), self._stolen()

    def _waited(self) -> float:
        return int(_first_line(self._schedule).split()[1]) / 1e9 if self._schedule else 0.0

    def _stolen(self) -> float:
        words = _first_line(self._processors).split() if self._processors else []
        return int(words[STEAL]) / TICKS if len(words) > STEAL else 0.0


def _opened(path: Path) -> IO[str] | None:
    return path.open(encoding="ascii") if path.exists() else None


def _first_line(file: IO[str]) -> str:
    file.seek(0)
    return file.readline()


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
