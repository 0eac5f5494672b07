"""Where a question is written."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QPlainTextEdit


class Entry(QPlainTextEdit):
    """Enter sends, Shift+Enter makes a new line; neither while a word is being composed."""

    submitted = Signal()
    left = Signal()
    """Escape: what was begun here is left."""
    earlier = Signal()
    """Up, in an empty entry: the question before is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self._composing = False
        self.setPlaceholderText("Write a message")
        self.setAccessibleName("Message")
        self.setTabChangesFocus(True)
        self.setFixedHeight(64)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and self._composing:
            event.accept()
        elif enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            event.accept()
            self.submitted.emit()
        elif event.key() == Qt.Key.Key_Escape and not self._composing:
            event.accept()
            self.left.emit()
        elif event.key() == Qt.Key.Key_Up and not event.modifiers() and self.document().isEmpty():
            event.accept()
            self.earlier.emit()
        else:
            super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)
