"""The bar over the map: the verdict and what to do, or how far it is, or what went wrong."""

from __future__ import annotations

import time
from functools import partial

from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QStackedWidget, QWidget

from layerlight.core.messages import LayerPlaced, LayerRan, LoadProgressed, StarterProgressed, TextProduced
from layerlight.core.state import State
from layerlight.ui.banner import Banner, BannerWriter
from layerlight.ui.controls import Painted, button, column, label, retone, row
from layerlight.ui.icons import draw_verdict
from layerlight.ui.palette import Theme
from layerlight.ui.session import Session

HEIGHT = 72
STALL = 5.0
"""Seconds without a word of progress after which that is said."""
SETTLE = 60
"""ms after the last change of a limit before the verdict is written anew: it would flicker."""

ACTIONS = {
    "load": "Load",
    "apply": "Apply",
    "unload": "Unload",
    "dismiss": "Dismiss",
    "details": "Details",
    "cancel": "Cancel",
}


class VerdictBar(QFrame):
    """Shows one banner. `acted` carries the key of the button that was pressed."""

    acted = Signal(str)

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setFixedHeight(HEIGHT)
        self.setAccessibleName("Verdict")
        self._session = session
        self._writer = BannerWriter(session)
        self._prefer_next = False
        self._banner: Banner | None = None
        self._heard = time.monotonic()
        self._build()
        self._settling = QTimer(self, singleShot=True, interval=SETTLE)
        self._settling.timeout.connect(self._update)
        self._clock = QTimer(self, interval=1000)
        self._clock.timeout.connect(self._update_stall)
        session.changed.connect(self._changed)
        self._update()

    @property
    def banner(self) -> Banner | None:
        return self._banner

    @property
    def second_line(self) -> str:
        """The smaller line as it stands, a stall included."""
        progress = self._banner is not None and self._banner.kind == "progress"
        return self._stage.text() if progress else self._second.text()

    def fit(self) -> None:
        """Takes room only while there is something to say; never as a window of its own, before it has its place."""
        if self.parentWidget() is not None:
            self.setVisible(self._banner is not None)

    def prefer_next(self, prefer: bool) -> None:
        if prefer != self._prefer_next:
            self._prefer_next = prefer
            self._update()

    def button(self, action: str) -> QWidget:
        """The button of an action, for tests and for the keyboard's way."""
        if action == "cancel":
            return self._cancel
        return self._buttons[action]

    def _build(self) -> None:
        self._mark = Painted(24, self._draw_mark, 24)
        self._words = label("", size=15, weight=500)
        self._second = label("", "3")
        for text in (self._words, self._second):
            text.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._buttons = {key: button(words) for key, words in ACTIONS.items() if key != "cancel"}
        for key, each in self._buttons.items():
            each.clicked.connect(partial(self._press, key))
        words = column(self._words, self._second, gap=3)
        words.setAlignment(Qt.AlignmentFlag.AlignVCenter)
        said = QWidget()
        line = row(self._mark, 8, margins=(20, 10, 20, 10), gap=8)
        line.addLayout(words, 1)
        for each in self._buttons.values():
            line.addWidget(each)
        said.setLayout(line)
        self._done = label("", size=20, weight=600)
        self._stage = label("", "2")
        self._stage.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._cancel = button(ACTIONS["cancel"])
        self._cancel.clicked.connect(partial(self._press, "cancel"))
        self._bar = Painted(6, self._draw_bar)
        self._bar.setAccessibleName("Progress")
        top = QHBoxLayout()
        top.setSpacing(14)
        top.addWidget(self._done)
        top.addWidget(self._stage, 1)
        top.addWidget(self._cancel)
        going = QWidget()
        going.setLayout(column(top, self._bar, margins=(20, 12, 20, 14), gap=10))
        self._pages = QStackedWidget()
        self._pages.addWidget(said)
        self._pages.addWidget(going)
        self.setLayout(column(self._pages, gap=0))

    def _press(self, key: str, _checked: bool = False) -> None:
        self.acted.emit(key)

    # -- from the session ----------------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if isinstance(event, LayerRan | TextProduced):
            return
        if isinstance(event, LoadProgressed | LayerPlaced | StarterProgressed):
            self._heard = time.monotonic()
        if self._session.busy or self._banner is None or self._banner.kind == "progress":
            self._settling.stop()
            self._update()
        else:
            self._settling.start()

    @Slot()
    def _update(self) -> None:
        banner = self._writer.write(self._prefer_next)
        if banner == self._banner:
            return
        if banner is not None and (self._banner is None or self._banner.kind != "progress"):
            self._heard = time.monotonic()
        self._banner = banner
        self.fit()
        if banner is None:
            return
        self._pages.setCurrentIndex(1 if banner.kind == "progress" else 0)
        if banner.kind == "progress":
            self._update_progress(banner)
        else:
            self._clock.stop()
            self._update_words(banner)

    def _update_words(self, banner: Banner) -> None:
        self._words.setText(banner.words)
        self._words.setToolTip(banner.words)
        self._second.setText(banner.second)
        self._second.setToolTip(banner.second)
        self._second.setVisible(bool(banner.second))
        self.setAccessibleDescription(f"{banner.words} {banner.second}")
        self._buttons["apply"].setText(banner.apply or ACTIONS["apply"])
        self._buttons["load"].setText(banner.load or ACTIONS["load"])
        self._buttons["load"].setEnabled(not banner.refusal)
        self._buttons["load"].setToolTip(banner.refusal)
        primary = banner.actions[-1] if banner.actions and banner.actions[-1] != "unload" else ""
        for key, each in self._buttons.items():
            each.setVisible(key in banner.actions)
            kind = "primary" if key == primary else ""
            retone(each, "kind", kind)
        self._mark.update()

    def _update_progress(self, banner: Banner) -> None:
        if not self._clock.isActive():
            self._clock.start()
        self._done.setText(banner.words)
        self._stage.setText(banner.second)
        self._stage.setToolTip(banner.second)
        self._cancel.setEnabled("cancel" in banner.actions)
        share = "" if banner.share is None else f"{banner.share:.0%}"
        self._bar.setAccessibleDescription(share)
        self._bar.update()

    @Slot()
    def _update_stall(self) -> None:
        """A stall is said, not hidden behind a bar that stands still."""
        quiet = time.monotonic() - self._heard
        if self._banner is None or self._banner.kind != "progress" or self._banner.share is None:
            return
        stalled = quiet > STALL
        self._stage.setText(f"{self._banner.second}. No progress for {quiet:.0f} s" if stalled else self._banner.second)

    # -- painting ------------------------------------------------------------------------------------------------

    def _draw_mark(self, p: QPainter, r: QRectF, t: Theme) -> None:
        if self._banner is not None and self._banner.kind in ("fits", "slow", "failed"):
            draw_verdict(p, self._banner.kind, r.adjusted(1, 1, -1, -1), t)

    def _draw_bar(self, p: QPainter, r: QRectF, t: Theme) -> None:
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.line))
        p.drawRoundedRect(r, 3, 3)
        share = self._banner.share if self._banner is not None else None
        if share:
            p.setBrush(QColor(t.ink))
            p.drawRoundedRect(QRectF(0, 0, max(6.0, r.width() * min(1.0, share)), r.height()), 3, 3)
