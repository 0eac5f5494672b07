"""Looks at RAM and disk on a thread: reading all files of a control group takes too long for the window's own."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from layerlight.core.device import Device
from layerlight.core.machines import local_memory


def look() -> tuple[Device, ...]:
    """RAM and the disk of the person's home, as they are now."""
    return local_memory.ram(), local_memory.disk(Path.home())


class RamWatch(QObject):
    """One look at a time."""

    seen = Signal(object)
    """tuple[Device, ...]"""

    def __init__(self) -> None:
        super().__init__()
        self._looking: threading.Thread | None = None

    def look(self) -> None:
        """Answered by `seen`; while a look is under way nothing more is begun."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self._run, name="look at RAM", daemon=True)
            self._looking.start()

    def _run(self) -> None:
        found = look()
        with suppress(RuntimeError):  # the window is gone already
            self.seen.emit(found)
