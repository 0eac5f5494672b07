"""Ways to make it faster: what would be better than the plan, each with its gain, its price and an Apply."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFrame, QWidget

from layerlight.core.fixes import Fix
from layerlight.core.messages import LayerPlaced, LayerRan, LoadProgressed, MemoryMeasured, TextProduced
from layerlight.core.state import State
from layerlight.ui.controls import button, column, label, row, rule
from layerlight.ui.session import Session
from layerlight.ui.words import duration

SHOWN = 5
READY = 3
"""Rows that are made beforehand."""


class FixesPanel(QWidget):
    """Hidden while there is nothing to make better."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._shown: tuple[Fix, ...] = ()
        self._head = label("", "head")
        self._rows: list[FixRow] = []
        self._list = column(gap=10)
        self.setLayout(column(self._head, self._list, 4, rule(), 4, gap=8))
        for _ in range(READY):
            self._add_row()
        self.hide()
        session.changed.connect(self._changed)

    @property
    def rows(self) -> list[FixRow]:
        """The rows that are shown, the best fix first."""
        return self._rows[: len(self._shown)]

    def _add_row(self) -> None:
        made = FixRow()
        made.applied.connect(self._apply)
        self._rows.append(made)
        self._list.addWidget(made)

    @Slot(object)
    def _apply(self, fix: Fix) -> None:
        self._session.apply(fix)

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        if isinstance(event, LayerRan | TextProduced | MemoryMeasured | LoadProgressed | LayerPlaced):
            return
        plan, fixes = state.plan, self._session.planning.fixes
        if plan is None:
            self._show((), "")
        elif fixes is not None:  # while new ones are looked for, the old ones stay: nothing flickers
            self._show(fixes[:SHOWN], "Ways to make it faster" if plan.fits else "Ways to make it fit")

    def _show(self, fixes: tuple[Fix, ...], head: str) -> None:
        if fixes == self._shown and head == self._head.text():
            return
        self._shown = fixes
        self._head.setText(head)
        while len(self._rows) < len(fixes):
            self._add_row()
        for i, each in enumerate(self._rows):
            if i < len(fixes):
                each.show_fix(fixes[i])
            each.setVisible(i < len(fixes))
        self.setVisible(bool(fixes))


class FixRow(QFrame):
    """One fix. What only a person can do has no button."""

    applied = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._fix: Fix | None = None
        self._words = label("", size=13, weight=600, wrap=True)
        self._pace = label("", size=13, weight=600)
        self._gain = label("", "3")
        self._price = label("", "3", wrap=True)
        self.button = button("Apply")
        self.button.clicked.connect(self._apply)
        top = row(gap=6)
        top.addWidget(self._words, 1)
        for each in (self._pace, self._gain):
            top.addWidget(each, 0, Qt.AlignmentFlag.AlignTop)
        below = row()
        below.addWidget(self._price, 1)
        below.addWidget(self.button, 0, Qt.AlignmentFlag.AlignTop)
        self.setLayout(column(top, below, gap=3))
        self.hide()

    @property
    def words(self) -> str:
        return self._words.text()

    @property
    def gain(self) -> str:
        return f"{self._pace.text()} {self._gain.text()}".strip()

    def show_fix(self, fix: Fix) -> None:
        self._fix = fix
        words = fix.words.rstrip(".")
        self._words.setText(words)
        self._pace.setText(duration(fix.seconds_per_token))
        self._pace.setToolTip("Predicted time of a token")
        self._gain.setText(_times(fix.gain))
        self._price.setText(fix.price)
        said = "Plan for it" if fix.machine is not None else "Plan it" if fix.model else "Apply"
        changes = fix.wishes is not None and fix.budget is not None
        self.button.setVisible(changes or fix.machine is not None or bool(fix.model))
        self.button.setText(said)
        self.button.setToolTip("" if said == "Apply" else "Shows what it would be; nothing is loaded")
        self.button.setAccessibleName(f"{said}: {words}")

    def _apply(self) -> None:
        if self._fix is not None:
            self.applied.emit(self._fix)


def _times(gain: float) -> str:
    """`52×`, `1.8×`; nothing where the plan does not fit as it is."""
    if gain == float("inf"):
        return ""
    return f"{gain:.0f}×" if gain >= 10 else f"{gain:.1f}×"
