"""The window's program: QApplication, exception hook, session, window."""

from __future__ import annotations

import gc
import json
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication

from layerlight.core.folders import Folders, own_folders
from layerlight.ui.parts import gather
from layerlight.ui.theme import ThemeSwitch, font
from layerlight.ui.window import Window

if TYPE_CHECKING:
    from layerlight.ui.program import Program

Result = TypeVar("Result")
UNSEEN = 300
"""ms after which the rest is put together even if nobody sees the window: it may have been opened minimised."""
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
    _came = Signal()
    """What was done on a thread is done."""

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
        self._came.connect(self._step, Qt.ConnectionType.QueuedConnection)
        self._begun = False
        self._steps = self._build()

    def start(self) -> None:
        """Begins once the window is on the screen: what came before would only keep it from there."""
        self.window.seen.connect(self._begin, Qt.ConnectionType.QueuedConnection)
        QTimer.singleShot(UNSEEN, self, self._begin)

    @Slot()
    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._step()

    def hurry(self) -> Program:
        """Does all that is left at once."""
        for step in self._steps:
            if isinstance(step, threading.Thread):
                step.join()
        if self.program is None:
            raise RuntimeError("the window was closed before the program stood")
        return self.program

    def finish(self) -> None:
        self._steps.close()
        if self.program is not None:
            self.program.finish()

    @Slot()
    def _step(self) -> None:
        for step in self._steps:
            if not isinstance(step, threading.Thread):  # it calls again when it is done
                QTimer.singleShot(0, self, self._step)
            return

    def _beside(self, work: Callable[[], Result], name: str) -> Generator[threading.Thread, None, Result]:
        """What `work` gives or raises, done on a thread while the window goes on."""
        found: list[Result] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                found.append(work())
            except Exception as error:  # noqa: BLE001  a thread's edge
                failed.append(error)
            finally:
                with suppress(RuntimeError):  # the window is gone already
                    self._came.emit()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        yield thread
        if failed:
            raise failed[0]
        return found[0]

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
        yield from self._beside(gather, "imports")
        from layerlight.ui import program as making

        program = yield from making.assemble(self.window, self.themes, self._folders, self._engine)
        self.program = program
        yield
        program.link.start()
        yield
        from layerlight.ui.session import here

        machine = yield from self._beside(here, "look at RAM")
        program.session.begin(machine)
        yield
        yield from program.desk.prepare()
        from layerlight.ui.chats import reopened

        chats = yield from self._beside(partial(reopened, self._folders.chats), "chats")  # checks all of the file
        yield
        program.session.reopen(chats)
        folder = next((each for each in self._argv if not each.startswith("-")), None)
        if folder:
            program.session.open_folder(folder)
        self.ready.emit(program)


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
