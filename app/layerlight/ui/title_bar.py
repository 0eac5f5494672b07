"""The bar at the top: the mark, the menus, and how the engine is."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Slot
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QFrame, QMenu, QMenuBar

from layerlight.core.messages import LayerRan, LoadProgressed, MemoryMeasured, TextProduced
from layerlight.core.state import Phase, State
from layerlight.ui.controls import Painted, button, label, retone, row
from layerlight.ui.icons import draw_mark
from layerlight.ui.palette import Theme
from layerlight.ui.session import Session

HEIGHT = 48


class TitleBar(QFrame):
    def __init__(self, session: Session, menus: QMenuBar, machines: QMenu) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setFixedHeight(HEIGHT)
        self._session = session
        self._dot = Painted(10, self._draw_dot, 10)
        self._engine = label("", "3")
        mark = Painted(20, lambda p, r, t: draw_mark(p, r.adjusted(0, 1, 0, 0), t), 20)
        line = row(mark, label("Layerlight", size=14, weight=600), 8, margins=(16, 8, 16, 8))
        line.addWidget(menus, 1, Qt.AlignmentFlag.AlignVCenter)
        line.addWidget(self._dot, 0, Qt.AlignmentFlag.AlignVCenter)
        line.addWidget(self._engine)
        self.search = button("Commands  Ctrl+K", "quiet", "Every command, by a few of its letters")
        line.addSpacing(8)
        line.addWidget(self.search)
        self.machine = button("", hint="What would it be on another machine?")
        self.machine.setMenu(machines)
        line.addSpacing(8)
        line.addWidget(self.machine)
        self.setLayout(line)
        session.changed.connect(self._changed)
        self._update()

    @property
    def engine_words(self) -> str:
        return self._engine.text()

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not isinstance(event, LayerRan | TextProduced | MemoryMeasured | LoadProgressed):
            self._update()

    def _update(self) -> None:
        state = self._session.state
        words = engine_words(state)
        if words != self._engine.text():
            self._engine.setText(words)
            self._dot.update()
        elsewhere = self._session.elsewhere
        where = "On this machine" if elsewhere is None else f"Would be on {elsewhere.title}"
        if where != self.machine.text():
            self.machine.setText(where)
            retone(self.machine, "kind", "" if elsewhere is None else "primary")
        self._engine.setToolTip("\n".join(f"{name} {version}" for name, version in state.versions))

    def _draw_dot(self, p: QPainter, r: QRectF, t: Theme) -> None:
        """Full when the engine can work, open while it can't: the words beside it say the same."""
        state = self._session.state
        p.setPen(QPen(QColor(t.ink2), 1.4))
        p.setBrush(QColor(t.ink2) if state.engine_warm else Qt.BrushStyle.NoBrush)
        p.drawEllipse(r.adjusted(2, 2, -2, -2))


def engine_words(state: State) -> str:
    if not state.engine_running:
        return "Engine starting"
    if not state.engine_warm:
        return "Engine warming up"
    doing = {
        Phase.LOADING: "Loading",
        Phase.RUNNING: "Running",
        Phase.FETCHING: "Fetching",
        Phase.CALIBRATING: "Measuring",
        Phase.READY: "Model loaded",
    }
    return doing.get(state.phase, "Engine ready")
