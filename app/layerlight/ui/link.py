"""The link to the engine's process: the window sends, hears and never waits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from layerlight.core.messages import EngineStopped, EngineWarmed, Event, Request
from layerlight.ui.batching import joined
from layerlight.ui.engine_process import EngineProcess

FRAME = 0.033
"""Seconds between two deliveries to the window at the least."""
QUICK = 10.0
"""Seconds: an engine that dies sooner than this without having warmed up did not start."""
TRIES = 3
GRACE = 1.5
"""Seconds an engine has to end by itself when the window closes."""


def engine_command() -> list[str]:
    """How the engine is started: by this Python, or by the bundle that this program is part of."""
    if getattr(sys, "frozen", False):
        return [sys.executable, "--engine-host"]
    return [sys.executable, "-m", "layerlight.engine.host"]


class Link(QObject):
    """Keeps one engine process alive and delivers its events on the thread of this object.

    A process that dies is replaced; after `TRIES` deaths in a row during the start it waits for the next request.
    """

    arrived = Signal(object)
    """list[Event], in order, joined to at most 30 deliveries a second."""
    _woken = Signal()

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        super().__init__()
        self._command, self._environment, self._log = command, environment, log
        self._process: EngineProcess | None = None
        self._events: list[Event] = []
        self._guard = threading.Lock()
        self._closing = False
        self._began = 0.0
        self._deaths = 0
        self._delivered = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._deliver)
        self._woken.connect(self._schedule, Qt.ConnectionType.QueuedConnection)

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the engine when none runs."""
        if self._process is not None or self._closing:
            return
        self._began = time.monotonic()
        process = EngineProcess(self._command, self._environment, self._log, self._heard)
        self._process = process
        process.start()

    def send(self, request: Request) -> None:
        self.start()
        if self._process is not None:
            self._process.send(request)

    def replace(self, reason: str) -> None:
        """Ends the engine at once; a new one starts when the old one is gone. Answered by EngineStopped."""
        if self._process is not None:
            self._process.kill(reason)

    def close(self) -> None:
        """Asks the engine to end; returns at once. Call `finish` when the window is gone."""
        self._closing = True
        if self._process is not None:
            self._process.quit()

    def finish(self) -> None:
        """Waits for the end that `close` asked for, and makes sure of it."""
        self._closing = True
        process, self._process = self._process, None
        if process is not None and not process.join(GRACE):
            process.kill()
            process.join(GRACE)

    # -- delivery ------------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        """On the reading thread."""
        with self._guard:
            first = not self._events
            self._events.append(event)
        if first and not self._closing:
            self._woken.emit()

    @Slot()
    def _schedule(self) -> None:
        if not self._timer.isActive():
            wait = FRAME - (time.monotonic() - self._delivered)
            self._timer.start(max(0, round(wait * 1000)))

    @Slot()
    def _deliver(self) -> None:
        with self._guard:
            events, self._events = self._events, []
        if self._closing:
            return
        self._delivered = time.monotonic()
        for event in events:
            if isinstance(event, EngineWarmed):
                self._deaths = 0
        if events:
            self.arrived.emit(joined(events))
        if any(isinstance(event, EngineStopped) for event in events):
            self._ended(any(isinstance(event, EngineStopped) and event.expected for event in events))

    def _ended(self, expected: bool) -> None:
        self._process = None
        if not expected and time.monotonic() - self._began < QUICK:
            self._deaths += 1
        if self._deaths < TRIES:
            self.start()
        else:
            self._deaths = 0
