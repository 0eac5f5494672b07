"""Faults: our own mistakes, written to the log and said."""

from __future__ import annotations

import sys
import traceback
from datetime import datetime
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QObject, Signal, Slot

from layerlight.ui.session import Session


class Faults(QObject):
    """Our own mistakes: written to the log with their traceback, and said; the window goes on."""

    _met = Signal(str)

    def __init__(self, session: Session, log: Path) -> None:
        super().__init__()
        self._session, self._log = session, log
        self._met.connect(self._tell)

    def install(self) -> None:
        sys.excepthook = self.hook

    def hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Takes what nobody caught, on any thread."""
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now():%H:%M:%S}  {text}")
        except OSError:
            sys.stderr.write("(and the log can't be written)\n")
        self._met.emit(f"Something unexpected happened: {error!r}. The log has the details (Ctrl+Shift+L).")

    @Slot(str)
    def _tell(self, words: str) -> None:
        self._session.notify(words)
