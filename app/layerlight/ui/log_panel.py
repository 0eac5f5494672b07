"""What happened: the end of the log, where an error is explained."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit

from layerlight.ui.controls import Elided, button, column, label, row

SHOWN = 64 * 1024
"""Bytes of the log's end that are shown."""


class LogPanel(QFrame):
    """Reads the log when it is shown."""

    closed = Signal()

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.setObjectName("panel")
        self._log = log
        self._text = QPlainTextEdit()
        self._text.setObjectName("log")
        self._text.setReadOnly(True)
        self._text.setAccessibleName("Log")
        copy = button("Copy the whole log", "link")
        copy.clicked.connect(self._copy)
        close = button("Close", "quiet")
        close.clicked.connect(self._close)
        self.close_button = close
        head = row(label("What happened", "head"), None, close)
        box = column(margins=(16, 12, 16, 12))
        box.addLayout(head)
        box.addWidget(Elided(str(log), "3"))
        box.addWidget(self._text, 1)
        box.addLayout(row(copy, None))
        self.setLayout(box)

    @property
    def text(self) -> str:
        return self._text.toPlainText()

    def read(self) -> None:
        self._text.setPlainText(read_end(self._log) or "The log is empty.")
        self._text.moveCursor(QTextCursor.MoveOperation.End)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(read_end(self._log, 16 * SHOWN))

    def _close(self) -> None:
        self.closed.emit()


def read_end(log: Path, size: int = SHOWN) -> str:
    """The last whole lines of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if end <= size else text.partition("\n")[2]
