"""One line over the view that a person may put away: what is worth knowing and no failure."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFrame

from layerlight.core.messages import LayerRan, LoadProgressed, MemoryMeasured, TextProduced
from layerlight.core.state import State
from layerlight.ui.controls import button, column, label, row, rule
from layerlight.ui.session import Session


class NoticeBar(QFrame):
    """Shows the session's notice while there is one."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("panel")
        self._session = session
        self._words = label("", "2", wrap=True)
        self._words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        close = button("Close", "quiet", "Put this line away")
        close.clicked.connect(session.dismiss)
        line = row(margins=(20, 4, 12, 4))
        line.addWidget(self._words, 1)
        line.addWidget(close)
        self.setLayout(column(line, rule(), gap=0))
        self.hide()
        session.changed.connect(self._changed)

    @property
    def words(self) -> str:
        return self._words.text() if not self.isHidden() else ""

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if isinstance(event, LayerRan | TextProduced | MemoryMeasured | LoadProgressed):
            return
        if self._words.text() != self._session.notice:
            self._words.setText(self._session.notice)
        self.setVisible(bool(self._session.notice))
