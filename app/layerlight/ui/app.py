"""The window's program: QApplication, exception hook, session, window."""

from __future__ import annotations

import gc
import importlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication

from layerlight.core.folders import Folders, own_folders
from layerlight.ui.parts import PARTS
from layerlight.ui.theme import ThemeSwitch, font
from layerlight.ui.window import Window

if TYPE_CHECKING:
    from layerlight.ui.program import Program

Result = TypeVar("Result")
HEAVY = ("msgspec", "layerlight.core.messages", "psutil")
"""Parts that take long and can't be had in pieces."""
PEEP = 4
"""ms between two looks at a thread that imports."""
SWITCH = 0.001
"""Seconds after which a thread that works in Python lets the window's own in: 5 ms by default, once for every slot."""


def main(argv: Sequence[str] = (), engine: Sequence[str] | None = None, folders: Folders | None = None) -> int:
    """Opens the window, and the model folder in `argv` if there is one. Returns the exit code.

    `engine` is the command that starts the engine; tests start it on simulated accelerators.
    """
    app = QApplication([sys.argv[0], *argv])
    opening = Opening(app, folders or own_folders(), engine, argv)
    opening.window.show()
    opening.start()
    beat = _listen_for_interrupt(app)
    code = app.exec()
    beat.stop()
    opening.finish()
    return code


class Opening(QObject):
    """Shows an empty window first, then puts the program together behind it, one small step at a time."""

    ready = Signal(object)
    """The Program, once everything stands and the engine has been started."""

    def __init__(
        self, app: QApplication, folders: Folders, engine: Sequence[str] | None = None, argv: Sequence[str] = ()
    ) -> None:
        super().__init__()
        app.setApplicationName("Layerlight")
        app.setDesktopFileName("layerlight")
        app.setFont(font(13))
        self._folders, self._engine, self._argv = folders, engine, tuple(argv)
        saved = _saved(folders.settings)
        self.themes = ThemeSwitch(app, str(saved.get("theme", "system")))
        self.window = Window(str(saved.get("window_geometry", "")))
        self.window.closing.connect(self._close_early)
        self.program: Program | None = None
        self._steps = self._build()

    def start(self) -> None:
        QTimer.singleShot(0, self, self._step)

    def hurry(self) -> Program:
        """Does all that is left at once."""
        for _ in self._steps:
            pass
        if self.program is None:
            raise RuntimeError("the window was closed before the program stood")
        return self.program

    def finish(self) -> None:
        self._steps.close()
        if self.program is not None:
            self.program.finish()

    @Slot()
    def _step(self) -> None:
        for wait in self._steps:
            QTimer.singleShot(wait or 0, self, self._step)
            return

    @Slot()
    def _close_early(self) -> None:
        self._steps.close()

    def _build(self) -> Generator[Any, None, None]:
        """A collection of garbage amid all the new modules is a stall, and there is none yet: it waits, and afterwards
        never looks at what lives as long as the program."""
        gc.disable()
        sys.setswitchinterval(SWITCH)
        try:
            yield from self._put_together()
            gc.freeze()
        finally:
            gc.enable()

    def _put_together(self) -> Generator[Any, None, None]:
        yield
        QFontMetrics(font(14)).horizontalAdvance("Layerlight")  # finds the fonts, which takes as long as a large import
        yield
        for part in PARTS:
            if part in HEAVY:
                yield from _beside(partial(importlib.import_module, part), f"import {part}")
            importlib.import_module(part)
            yield
        from layerlight.ui import program as making

        self.themes.dress()
        yield
        yield from making.warm_up(self.window)
        program = yield from making.assemble(self.window, self.themes, self._folders, self._engine)
        self.program = program
        yield
        program.link.start()
        yield
        from layerlight.ui.session import here

        machine = here()
        yield
        program.session.begin(machine)
        yield
        yield from program.desk.prepare()
        yield
        from layerlight.store.chats import open_chats

        store = yield from _beside(partial(open_chats, self._folders.chats), "chats")  # checks all of the file
        store.take_over()
        yield
        program.session.reopen(store)
        folder = next((each for each in self._argv if not each.startswith("-")), None)
        if folder:
            program.session.open_folder(folder)
        self.ready.emit(program)


def _beside(work: Callable[[], Result], name: str) -> Generator[int, None, Result]:
    """What `work` gives, done on a thread while the window goes on; an error is met again when it is redone here."""
    found: list[Result] = []

    def run() -> None:
        with suppress(Exception):
            found.append(work())

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    while thread.is_alive():
        yield PEEP
    return found[0] if found else work()


def _saved(path: Path) -> dict[str, Any]:
    """The settings as they stand in the file, for the first look of the window; they are checked later."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _listen_for_interrupt(app: QApplication) -> QTimer:
    """Ctrl-C and SIGTERM close the window; Python hears signals only while its code runs, hence the beat."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: QTimer.singleShot(0, app.closeAllWindows))  # not inside a paint
    beat = QTimer()
    beat.timeout.connect(_beat)
    beat.start(500)
    return beat


def _beat() -> None:
    """Does nothing: it lets Python look for signals."""
