"""The export menu: the plan as text, device_map, Python or JSON, to the clipboard or a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from layerlight.core import export
from layerlight.core.advice import verdict_of
from layerlight.core.errors import LayerlightError
from layerlight.core.plan import Plan
from layerlight.ui.session import Session
from layerlight.ui.words import short_size


class ExportMenu(QMenu):
    """Exports the plan for the next load."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__("Export the plan", parent)
        self._session = session
        self._copy("Copy as text", as_text)
        self._copy("Copy as device_map", as_device_map)
        self._copy("Copy as Python", export.python_snippet)
        self.addSeparator()
        self._save("Save as JSON…", export.plan_json, "plan.json")
        self._save("Save as Python…", export.python_snippet, "load_model.py")
        self.aboutToShow.connect(self._update)
        self._update()

    @Slot()
    def _update(self) -> None:
        for action in self.actions():
            action.setEnabled(self._session.state.plan is not None)

    def _copy(self, words: str, write: Callable[[Plan], str]) -> None:
        self.addAction(words).triggered.connect(partial(self._do_copy, words, write))

    def _save(self, words: str, write: Callable[[Plan], str], name: str) -> None:
        self.addAction(words).triggered.connect(partial(self._do_save, write, name))

    def _do_copy(self, words: str, write: Callable[[Plan], str], _checked: bool = False) -> None:
        plan = self._session.state.plan
        if plan is not None:
            try:
                QGuiApplication.clipboard().setText(write(plan))
            except LayerlightError as error:
                self._session.notify(f"{error.message} {error.hint}")
                return
            self._session.notify(f"The plan is on the clipboard, {words.removeprefix('Copy ')}.")

    def _do_save(self, write: Callable[[Plan], str], name: str, _checked: bool = False) -> None:
        plan = self._session.state.plan
        if plan is None:
            return
        path, _ = QFileDialog.getSaveFileName(self.parentWidget(), "Export the plan", str(Path.home() / name))
        if not path:
            return
        try:
            Path(path).write_text(write(plan), encoding="utf-8")
        except LayerlightError as error:
            self._session.notify(f"{error.message} {error.hint}")
            return
        except OSError as error:
            self._session.notify(f"The plan could not be written to {path}: {error.strerror or error}.")
            return
        self._session.notify(f"The plan is in {path}.")


def as_device_map(plan: Plan) -> str:
    return json.dumps(export.device_map(plan), indent=2, ensure_ascii=False) + "\n"


def as_text(plan: Plan) -> str:
    """The verdict, what lies on each place, and each layer's place, for a mail or an issue."""
    lines = [f"{plan.model.name or plan.model.folder}: {verdict_of(plan).words}", ""]
    for use in plan.prediction.places:
        if use.used:
            room = "" if use.capacity is None else f" of {short_size(use.capacity)}"
            lines.append(f"{plan.machine.device(use.place).name} ({use.place}): {short_size(use.used)}{room}")
    wide = max((len(each.layer) for each in plan.placements), default=0)
    lines += ["", *(f"{each.layer:{wide}}  {_where(each.rests_on, each.runs_on)}" for each in plan.placements)]
    return "\n".join(lines) + "\n"


def _where(rests_on: str, runs_on: str) -> str:
    return rests_on if rests_on == runs_on else f"{rests_on}, runs on {runs_on}"
