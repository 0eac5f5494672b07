"""The empty window: what it is for, and the doors into it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QRectF, Qt, Signal, Slot
from PySide6.QtGui import QPainter, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QWidget

from layerlight.core.state import Phase, State
from layerlight.ui.controls import Painted, button, column, framed, label, row
from layerlight.ui.icons import draw_icon
from layerlight.ui.palette import Theme
from layerlight.ui.session import Session

STARTER = "SmolLM2-135M-Instruct: small, and quick on almost any machine. 93 MB to fetch, licence Apache-2.0."
UNSEEN = "How fast would a model be here, or on another machine? Its config and headers tell, no weights are fetched."
SHOWN_RECENT = 3


class WelcomePanel(QWidget):
    """`opened` carries a folder, or nothing when one has to be chosen."""

    opened = Signal(str)
    starter_wanted = Signal()
    chat_wanted = Signal()
    unseen_wanted = Signal()
    """A model is to be planned without having it."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        title = label("See where a model lives", size=28, weight=600)
        title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._intro = label("", size=14, wrap=True)
        self._intro.setProperty("tone", "2")
        self._intro.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.open_button = button("Choose a folder…")
        self.open_button.clicked.connect(partial(self._open, ""))
        self.starter_button = button("Get it", "primary")
        self.starter_button.clicked.connect(self._get_starter)
        self.unseen_button = button("Name a model…")
        self.unseen_button.clicked.connect(self._want_unseen)
        doors = row(
            None,
            _door("folder", "Open a folder", "A model you have, as safetensors. You can also drop its folder on this "
                  "window.", "Ctrl O", self.open_button),
            _door("get", "Get the starter model", STARTER, "Ctrl G", self.starter_button),
            _door("ask", "Plan a model you don’t have", UNSEEN, "Ctrl P", self.unseen_button),
            None, gap=16,
        )  # fmt: skip
        self._recent = QHBoxLayout()
        self._recent.setSpacing(4)
        self._shown: tuple[str, ...] | None = None
        self.measure = button("Measure this machine (at most 15 s)", "link")
        self.measure.setToolTip("Until then its speeds are typical figures. It can be stopped at any time.")
        self.measure.clicked.connect(session.calibrate)
        self.setLayout(
            column(
                None, title, self._intro, 24, doors, 16, self._recent, row(None, self.measure, None), None,
                margins=(24, 24, 24, 24),
            )
        )  # fmt: skip
        session.changed.connect(self._changed)
        self._update()

    def _open(self, folder: str, _checked: bool = False) -> None:
        self.opened.emit(folder)

    def _get_starter(self) -> None:
        self.starter_wanted.emit()

    def _want_unseen(self) -> None:
        self.unseen_wanted.emit()

    def _chat(self) -> None:
        self.chat_wanted.emit()

    @Slot(object, object)
    def _changed(self, _state: State, _event: object) -> None:
        if self.isVisible():
            self._update()

    def showEvent(self, _event: QShowEvent) -> None:
        self._update()

    def _update(self) -> None:
        machine, state = self._session.state.machine, self._session.state
        if machine is None:
            words = "Layerlight is looking at this machine."
        elif not state.engine_warm:
            words = "The lanes are this machine’s memory. Accelerators join them as soon as the engine has warmed up."
        else:
            words = "The empty lanes are this machine’s memory, to scale. Choose a model to fill them."
        self._intro.setText(words)
        self.measure.setVisible(not self._session.is_calibrated)
        self.measure.setEnabled(self._session.can_calibrate)
        fetching = state.phase is Phase.FETCHING or self._session.waiting == "StarterRequest"
        self.starter_button.setEnabled(not fetching)
        self.starter_button.setText("On its way…" if fetching else "Get it")
        self._update_recent()

    def _update_recent(self) -> None:
        folders = self._session.settings.recent_folders[:SHOWN_RECENT]
        shown = (*folders, "chat") if self._session.turns else folders
        if shown == self._shown:
            return
        self._shown = shown
        while (item := self._recent.takeAt(0)) is not None:
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        self._recent.addStretch(1)
        if folders:
            self._recent.addWidget(label("Opened before:", "3"))
        for folder in folders:
            self._recent.addWidget(self._link(Path(folder).name or folder, folder))
        if self._session.turns:
            self._recent.addWidget(self._link("Read the last chat", None))
        self._recent.addStretch(1)

    def _link(self, words: str, folder: str | None) -> QPushButton:
        link = button(words, "quiet", folder or "")
        if folder is None:
            link.clicked.connect(self._chat)
        else:
            link.clicked.connect(partial(self._open, folder))
        return link


def _door(kind: str, name: str, words: str, key: str, action: QPushButton) -> QFrame:
    mark = Painted(28, partial(_draw, kind), 28)
    body = label(words, "2", wrap=True)
    action.setAccessibleDescription(words)
    card = framed(
        column(
            row(mark, None, label(key, "3")), 4, label(name, size=16, weight=600), body, None, row(action, None),
            margins=(18, 18, 18, 18), gap=6,
        ),
        "card",
    )  # fmt: skip
    card.setFixedSize(256, 226)
    return card


def _draw(kind: str, p: QPainter, _r: QRectF, t: Theme) -> None:
    draw_icon(p, kind, 0, 0, t.ink, 26)
