"""Writes settings a moment after the last change, on a thread, and once more at the end."""

from __future__ import annotations

import threading
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from layerlight.core.errors import StoreFailed
from layerlight.core.settings import Settings, write_settings
from layerlight.core.state import State
from layerlight.ui.happenings import SettingsChanged
from layerlight.ui.session import Session

PAUSE = 600
"""ms without a change before settings are written."""


class SettingsKeeper(QObject):
    """One write at a time; a failed one is told once."""

    _failed = Signal(str)

    def __init__(self, session: Session, path: Path) -> None:
        super().__init__()
        self._session, self._path = session, path
        self._written = session.settings
        self._thread: threading.Thread | None = None
        self._told = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PAUSE)
        self._timer.timeout.connect(self._write)
        self._failed.connect(self._tell, Qt.ConnectionType.QueuedConnection)
        session.changed.connect(self._changed)

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if isinstance(event, SettingsChanged):
            self._timer.start()

    @Slot()
    def _write(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._timer.start()
            return
        settings = self._session.settings
        if settings != self._written:
            self._written = settings
            self._thread = threading.Thread(target=self._write_now, args=(settings,), name="settings", daemon=True)
            self._thread.start()

    def _write_now(self, settings: Settings) -> None:
        try:
            write_settings(self._path, settings)
        except StoreFailed as failure:
            self._failed.emit(f"{failure.message} {failure.hint}")

    @Slot(str)
    def _tell(self, words: str) -> None:
        if not self._told:
            self._told = True
            self._session.notify(words)

    def finish(self) -> None:
        """Writes what is not written yet; nobody is left to tell of a failure."""
        self._timer.stop()
        if self._thread is not None:
            self._thread.join(5)
        if self._session.settings != self._written:
            self._written = self._session.settings
            try:
                write_settings(self._path, self._written)
            except StoreFailed:
                return
