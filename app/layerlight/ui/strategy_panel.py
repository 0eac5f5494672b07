"""Who places the layers: our strategies, accelerate's own beside them, or a person; each with its seconds a token."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QFileDialog, QGridLayout, QWidget

from layerlight.core.comparison import Compared
from layerlight.core.placing import ENGINE_STRATEGIES
from layerlight.ui.controls import Radio, button, column, label, row
from layerlight.ui.session import Session
from layerlight.ui.words import duration, plural, short_size

NAMES = {"fastest": "Fastest", "most-on-gpu": "Most on the GPU", **{name: name for name in ENGINE_STRATEGIES}}
BY_HAND = "by-hand"
WARMING = "This is accelerate’s own: it is part of the engine, which is still warming up."
ABOUT = {
    "fastest": "The least seconds for a prompt and its answer.",
    "most-on-gpu": "As many bytes as fit on accelerators, whatever that costs.",
    "auto": "accelerate’s “auto”: today the same as “balanced”.",
    "balanced": "accelerate’s “balanced”: the same share for every accelerator.",
    "balanced_low_0": "accelerate’s “balanced_low_0”: balanced, with the first accelerator left nearly empty.",
    "sequential": "accelerate’s “sequential”: fills one accelerator after the other.",
    BY_HAND: "Keeps every layer where it is now, for you to move.",
}


class StrategyPanel(QWidget):
    """One row for each; arrow keys move between them."""

    map_wanted = Signal(str)
    """The file that a map is to be read from."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._group = QButtonGroup(self)
        self.setAccessibleName("Who places the layers")
        self.buttons: dict[str, Radio] = {}
        self._paces = {name: label("", "3") for name in (*NAMES, BY_HAND)}
        ours, theirs = QGridLayout(), QGridLayout()
        for grid, names in ((ours, ("fastest", "most-on-gpu")), (theirs, ENGINE_STRATEGIES)):
            grid.setContentsMargins(0, 0, 0, 0)
            grid.setVerticalSpacing(2)
            grid.setColumnStretch(0, 1)
            for at, name in enumerate(names):
                grid.addWidget(self._choice(name, NAMES[name]), at, 0)
                grid.addWidget(self._paces[name], at, 1, Qt.AlignmentFlag.AlignRight)
        self.open_map = button("Open a map…", "link", "JSON of the form {layer: place}, or a plan that was exported")
        self.open_map.clicked.connect(self._open_map)
        hand = row(self._choice(BY_HAND, "By hand"), self._paces[BY_HAND], None, self.open_map)
        theirs_head = label("accelerate’s own, for comparison", "3")
        self.setLayout(column(label("Who places the layers"), ours, theirs_head, theirs, hand, 4, gap=4))
        self._group.buttonClicked.connect(self._clicked)
        self.map_wanted.connect(session.open_map)
        session.strategies.changed.connect(self.update_rows)

    def pace(self, name: str) -> str:
        """What is said beside a choice."""
        return self._paces[name].text()

    @Slot()
    def update_rows(self) -> None:
        """Shows what the session knows of each strategy now."""
        session = self._session
        reason = "" if session.can_ask else WARMING
        for name in NAMES:
            theirs = name in ENGINE_STRATEGIES
            compared = session.strategies.rows.get(name)
            why_not = (reason or session.strategies.trouble) if theirs else ""
            if theirs and not why_not and compared is not None and compared.plan is None:
                why_not = compared.trouble
            self._show(name, compared if not why_not else None, why_not)
        self._show_hand()
        self.buttons[session.strategy if session.strategy in self.buttons else "fastest"].setChecked(True)

    def _show(self, name: str, compared: Compared | None, why_not: str) -> None:
        each = self.buttons[name]
        each.setEnabled(not why_not)
        each.setToolTip(why_not or ABOUT[name])
        words, hint = _pace(compared, why_not)
        if not words and not why_not:
            words, hint = "…", "Not known yet"
        said = self._paces[name]
        if said.text() != words:
            said.setText(words)
        said.setToolTip(hint)
        each.setAccessibleDescription(f"{words} {hint}".strip())

    def _show_hand(self) -> None:
        planning, plan = self._session.planning, self._session.state.plan
        self.buttons[BY_HAND].setEnabled(plan is not None)
        pins = len(planning.pins)
        self._paces[BY_HAND].setText(f"{plural(pins, 'layer')} pinned" if pins and not planning.map else "")

    def _choice(self, name: str, words: str) -> Radio:
        each = Radio(words)
        each.setToolTip(ABOUT[name])
        self._group.addButton(each)
        self.buttons[name] = each
        return each

    @Slot(QAbstractButton)
    def _clicked(self, clicked: QAbstractButton) -> None:
        self._session.follow(next(name for name, each in self.buttons.items() if each is clicked))
        self.update_rows()  # a refused choice leaves the one before it

    def _open_map(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a map", str(Path.home()), "JSON (*.json)")
        if path:
            self.map_wanted.emit(path)


def _pace(compared: Compared | None, why_not: str) -> tuple[str, str]:
    """(what is said beside a strategy, what its tooltip adds)."""
    if compared is None:
        return "", why_not
    plan = compared.plan
    if plan is None:
        return "no plan", compared.trouble
    if plan.fits:
        return duration(plan.prediction.seconds_per_token), "Predicted time of a token"
    tight = [use for use in plan.prediction.places if use.over]
    parts = [f"{short_size(use.over)} are missing on {plan.machine.device(use.place).name}" for use in tight]
    return f"does not fit, {short_size(plan.shortfall)} short", f"It does not fit: {' and '.join(parts)}."
