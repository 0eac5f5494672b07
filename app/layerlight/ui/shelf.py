"""The shelf: machines and models that come with the program as descriptions, read once on a thread."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal, Slot

from layerlight.core.errors import LayerlightError
from layerlight.core.machines.machine_figures import MachineFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """A public model whose numbers are known. `name` finds it, `words` are for people."""

    name: str
    words: str


class Shelf(QObject):
    """`filled` when a list is there; what can't be read stays empty, and the log says why."""

    filled = Signal()
    _read_machines = Signal(object)
    _read_models = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.machines: tuple[MachineFile, ...] = ()
        self.models: tuple[Shape, ...] = ()
        self._begun = False
        self._read_machines.connect(self._take_machines, Qt.ConnectionType.QueuedConnection)
        self._read_models.connect(self._take_models, Qt.ConnectionType.QueuedConnection)

    @Slot()
    def fill(self) -> None:
        """Reads them, the first time only."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._run, name="shelf", daemon=True).start()

    def _run(self) -> None:
        try:
            self._read_models.emit(_models())
            self._read_machines.emit(_machines())
        except (LayerlightError, OSError, ValueError):
            log.exception("the bundled descriptions can't be read")
        except RuntimeError:
            return  # the window is gone

    @Slot(object)
    def _take_machines(self, machines: tuple[MachineFile, ...]) -> None:
        self.machines = machines
        self.filled.emit()

    @Slot(object)
    def _take_models(self, models: tuple[Shape, ...]) -> None:
        self.models = models
        self.filled.emit()


def _machines() -> tuple[MachineFile, ...]:
    from layerlight.core.machines.machine_files import machine_names, read_machine_file

    found = (read_machine_file(name) for name in machine_names())
    return tuple(sorted(found, key=lambda each: each.title.casefold()))


def _models() -> tuple[Shape, ...]:
    from layerlight.core.machines.public_models import public_models

    return tuple(
        Shape(each.name, f"{each.repository.rpartition('/')[2]}, {each.parameters / 1e9:.1f} B parameters")
        for each in public_models()
    )
