"""Menus to pick from the shelf: a machine to plan for, a model to plan."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QMenu, QWidget

from layerlight.core.machines.machine_figures import MachineFile
from layerlight.ui.session import Session
from layerlight.ui.shelf import Shelf


class MachineMenu(QMenu):
    """`picked` carries a MachineFile, or None for this machine."""

    picked = Signal(object)

    def __init__(self, session: Session, shelf: Shelf, parent: QWidget | None = None) -> None:
        super().__init__("Plan for another machine", parent)
        self._session, self.shelf = session, shelf
        self.setToolTipsVisible(True)
        self.aboutToShow.connect(self._update)
        shelf.filled.connect(self._update)

    @Slot()
    def _update(self) -> None:
        self.shelf.fill()
        self.clear()
        self._add("This machine", None)
        self.addSection("What would it be on…")
        for machine in self.shelf.machines:
            self._add(machine.title, machine)
        if not self.shelf.machines:
            self.addAction("Reading the machines…").setEnabled(False)

    def _add(self, words: str, machine: MachineFile | None) -> None:
        action = self.addAction(words)
        action.setCheckable(True)
        now = self._session.elsewhere
        action.setChecked(now is machine or (now is not None and machine is not None and now.name == machine.name))
        if machine is not None:
            action.setToolTip(machine.about)
        action.triggered.connect(partial(self._pick, machine))

    def _pick(self, machine: MachineFile | None, _checked: bool = False) -> None:
        self.picked.emit(machine)


class ShapeMenu(QMenu):
    """`picked` carries the name of a public model."""

    picked = Signal(str)

    def __init__(self, shelf: Shelf, parent: QWidget | None = None) -> None:
        super().__init__("Plan a well-known model", parent)
        self._shelf = shelf
        self.aboutToShow.connect(self._update)
        shelf.filled.connect(self._update)

    @Slot()
    def _update(self) -> None:
        self._shelf.fill()
        self.clear()
        for shape in self._shelf.models:
            self.addAction(shape.words).triggered.connect(partial(self._pick, shape.name))
        if not self._shelf.models:
            self.addAction("Reading the models…").setEnabled(False)

    def _pick(self, name: str, _checked: bool = False) -> None:
        self.picked.emit(name)
