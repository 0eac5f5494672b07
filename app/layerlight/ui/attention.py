"""Tells of what ended while the window was not looked at."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from layerlight.core.messages import Failed, MachineCalibrated, ModelLoaded, RunFinished, StarterReady
from layerlight.core.state import State
from layerlight.ui.icons import window_icon
from layerlight.ui.session import Session
from layerlight.ui.words import duration

LONG = 8.0
"""Seconds of work whose end is worth a word."""
SHOWN = 10_000
"""ms that a message is shown, where the system lets us say."""


class Attention(QObject):
    """A message from the system's tray where there is one; elsewhere the taskbar asks for a look."""

    def __init__(self, session: Session, window: QWidget, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(window)
        self._session, self._window, self._clock = session, window, clock
        self._began: float | None = None
        self._tray: QSystemTrayIcon | None = None
        session.changed.connect(self._changed)

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        if self._session.busy and self._began is None:
            self._began = self._clock()
        words = said_of(event, state)
        if words is not None and self._began is not None:
            took = self._clock() - self._began
            if took >= LONG and self._session.settings.notifications and QApplication.activeWindow() is None:
                self.tell(words[0], words[1].format(took=duration(took)))
        if not self._session.busy:
            self._began = None

    def tell(self, title: str, words: str) -> None:
        tray = self._find_tray()
        if tray is None:
            QApplication.alert(self._window)
        else:
            tray.show()
            tray.showMessage(title, words, window_icon(), SHOWN)

    def _find_tray(self) -> QSystemTrayIcon | None:
        """Looked for when there is something to say: a desktop may have none, or get one later."""
        if self._tray is None and QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages():
            self._tray = QSystemTrayIcon(window_icon(), self)
            self._tray.setToolTip("Layerlight")
            self._tray.messageClicked.connect(self._come_forward)
            self._tray.activated.connect(self._come_forward)
            QApplication.instance().applicationStateChanged.connect(self._put_away)  # type: ignore[union-attr]
        return self._tray

    @Slot()
    def _come_forward(self) -> None:
        self._window.setWindowState(self._window.windowState() & ~Qt.WindowState.WindowMinimized)
        self._window.raise_()
        self._window.activateWindow()

    @Slot(Qt.ApplicationState)
    def _put_away(self, state: Qt.ApplicationState) -> None:
        """The icon stands in the tray only while there is something to say."""
        if self._tray is not None and state == Qt.ApplicationState.ApplicationActive:
            self._tray.hide()


def said_of(event: object, state: State) -> tuple[str, str] | None:
    """(title, words, in which `{took}` is how long it took) of an event that ends work; None of any other."""
    name = state.model.name if state.model is not None and state.model.name else "The model"
    match event:
        case ModelLoaded():
            return f"{name} is loaded", "It can be asked now. Loading took {took}."
        case RunFinished(result=result):
            ended = "Stopped" if result.ended == "stopped" else "The answer is there"
            return ended, f"{_plain(' '.join(result.text.split())[:160])} ({{took}})"
        case StarterReady():
            return "The starter model is there", "Fetching it took {took}."
        case MachineCalibrated():
            return "This machine is measured", "Plans count with what was measured. It took {took}."
        case Failed(failure=failure) if not failure.stopped:
            return failure.title, f"{_plain(failure.message)} (after {{took}})"
        case _:
            return None


def _plain(words: str) -> str:
    """Braces in what a model or an error says are no places to fill."""
    return words.replace("{", "{{").replace("}", "}}")
