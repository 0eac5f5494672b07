"""One turn of a chat as it is shown."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QFocusEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from layerlight.store.turns import Turn
from layerlight.ui.controls import button, column, framed, label, row
from layerlight.ui.palette import theme_of
from layerlight.ui.prose import Prose

ENDED = {
    "length": "Ended at the longest answer that was asked for.",
    "context": "Ended where the context is full.",
    "stopped": "Stopped at your request.",
}
BY_KEYS = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason, Qt.FocusReason.ShortcutFocusReason)


class TurnView(QWidget):
    """One question in its bubble, or one answer; where there are alternatives, a way to them."""

    alternative_wanted = Signal(int)
    """A turn's number."""
    menu_wanted = Signal(object, QPoint)
    """(this view, where on the screen)."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.is_question = turn.role == "user"
        self._ringed = False
        self._ways: list[QWidget] = []
        """The buttons that lead to its alternatives."""
        self._prose = Prose(turn.content)
        self._prose.installEventFilter(self)
        self._foot = label("", "3", wrap=True)
        self._foot.hide()
        self._prose.setAccessibleName(f"{'You' if self.is_question else 'Answer'}: {turn.content[:200]}")
        shown: QWidget = self._prose
        if self.is_question:
            shown = framed(column(self._prose, margins=(12, 7, 12, 7), gap=0), "bubble")
        self._box = column(shown, self._foot, gap=4, margins=(0, 0, 0, 0) if self.is_question else (4, 2, 4, 2))
        self.setLayout(self._box)
        if len(turn.alternatives) > 1:
            self._add_alternatives(turn)

    @property
    def text(self) -> str:
        return self._prose.text

    @property
    def selected(self) -> str:
        return self._prose.selected()

    def append(self, text: str) -> None:
        self._prose.append(text)

    def set_text(self, text: str) -> None:
        if text != self._prose.text:
            self._prose.set_text(text)
        self._prose.setAccessibleName(f"Answer: {text[:200]}")

    def show_live(self, live: bool) -> None:
        self._prose.show_caret(live)

    def end(self, turn: Turn) -> None:
        """The turn as it was stored, with what is worth knowing about how it ended."""
        self.turn = turn
        if self.is_question:
            return
        self.set_text(turn.content)
        result = turn.result
        words = []
        if result is None:
            words.append("Broken off; this part was kept.")
        else:
            if result.ended in ENDED:
                words.append(ENDED[result.ended])
            words.append(f"Seed {result.seed}")
        self._foot.setText("  ".join(words))
        self._foot.setVisible(bool(words))

    # -- alternatives ----------------------------------------------------------------------------------------------

    def _add_alternatives(self, turn: Turn) -> None:
        """‹ 2 of 3 ›."""
        at, what = turn.alternatives.index(turn.id), "question" if self.is_question else "answer"
        line = row(gap=2)
        for words, name, step in (("‹", f"The {what} before", -1), ("›", f"The {what} after", 1)):
            each = button(words, "quiet", name)
            each.setAccessibleName(name)
            there = at + step
            each.setEnabled(0 <= there < len(turn.alternatives))
            if each.isEnabled():
                each.clicked.connect(self._wanting(turn.alternatives[there]))
            line.addWidget(each)
            self._ways.append(each)
        count = label(f"{at + 1} of {len(turn.alternatives)}", "3")
        count.setAccessibleName(f"{what.capitalize()} {at + 1} of {len(turn.alternatives)}")
        line.insertWidget(1, count)
        line.addStretch(1)
        self._box.addLayout(line)

    def _wanting(self, turn: int) -> object:
        def want() -> None:
            self.alternative_wanted.emit(turn)

        return want

    # -- focus -----------------------------------------------------------------------------------------------------

    def allow_tab(self, allowed: bool) -> None:
        """Of all turns only the last is reached by Tab; from there keys lead to the others."""
        policy = Qt.FocusPolicy.StrongFocus if allowed else Qt.FocusPolicy.ClickFocus
        if self._prose.focusPolicy() != policy:
            self._prose.setFocusPolicy(policy)

    @property
    def tab_stops(self) -> list[QWidget]:
        """What Tab can reach in it, in order."""
        return [self._prose, *self._ways]

    def take_focus(self) -> None:
        self._prose.setFocus(Qt.FocusReason.ShortcutFocusReason)

    @property
    def focused(self) -> bool:
        return self._prose.hasFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._prose and isinstance(event, QFocusEvent):
            self._ringed = event.gotFocus() and event.reason() in BY_KEYS
            self.update()
        return super().eventFilter(watched, event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """A ring where keys lead; a click needs none."""
        if self._ringed:
            p = QPainter(self)
            p.setRenderHint(QPainter.RenderHint.Antialiasing)
            p.setPen(QPen(QColor(theme_of(self).ink), 2))
            p.drawRoundedRect(self.rect().adjusted(1, 1, -1, -1), 8, 8)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.menu_wanted.emit(self, event.globalPos())
