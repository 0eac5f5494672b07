"""The window's program: QApplication, exception hook, session, window."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication

import layerlight
from layerlight.core.environment import engine_environment
from layerlight.core.folders import Folders, own_folders
from layerlight.core.settings import read_settings
from layerlight.ui.link import Link, engine_command
from layerlight.ui.session import Session
from layerlight.ui.settings_keeper import SettingsKeeper
from layerlight.ui.theme import ThemeSwitch, font
from layerlight.ui.window import Window


@dataclass(slots=True)
class Program:
    """All that lives as long as the window does."""

    session: Session
    window: Window
    link: Link
    keeper: SettingsKeeper
    themes: ThemeSwitch
    faults: Faults

    def finish(self) -> None:
        """After the event loop: no process and no unsaved setting is left behind."""
        self.session.close()
        self.keeper.finish()
        self.link.finish()


def main(argv: Sequence[str] = (), engine: Sequence[str] | None = None, folders: Folders | None = None) -> int:
    """Opens the window, and the model folder in `argv` if there is one. Returns the exit code.

    `engine` is the command that starts the engine; tests start it on simulated accelerators.
    """
    app = QApplication([sys.argv[0], *argv])
    app.setApplicationName("Layerlight")
    app.setApplicationVersion(layerlight.__version__)
    app.setDesktopFileName("layerlight")
    app.setFont(font(13))
    folders = folders or own_folders()
    program = build(app, engine or engine_command(), folders)
    program.window.show()
    QTimer.singleShot(0, program.window, Begin(program, list(argv), folders.chats).run)
    beat = _listen_for_interrupt(app)
    code = app.exec()
    beat.stop()
    program.finish()
    return code


def build(app: QApplication, engine: Sequence[str], folders: Folders) -> Program:
    """Everything but the start: the window can be shown, nothing runs yet."""
    settings, notice = read_settings(folders.settings)
    log = folders.log / "layerlight.log"
    link = Link(engine, engine_environment(os.environ, settings.engine_environment), log)
    session = Session(link, settings)
    themes = ThemeSwitch(app, settings.theme)
    keeper = SettingsKeeper(session, folders.settings)
    window = Window(session, log, themes)
    faults = Faults(session, log)
    faults.install()
    if notice:
        session.notify(notice)
    return Program(session, window, link, keeper, themes, faults)


class Begin(QObject):
    """What starts once the window is on the screen."""

    def __init__(self, program: Program, argv: list[str], chats: Path) -> None:
        super().__init__(program.window)
        self._program, self._argv, self._chats = program, argv, chats

    @Slot()
    def run(self) -> None:
        from layerlight.store.chats import open_chats

        self._program.session.begin(open_chats(self._chats))
        folder = next((each for each in self._argv if not each.startswith("-")), None)
        if folder:
            self._program.session.open_folder(folder)


class Faults(QObject):
    """Our own mistakes: written to the log with their traceback, and said; the window goes on."""

    _met = Signal(str)

    def __init__(self, session: Session, log: Path) -> None:
        super().__init__()
        self._session, self._log = session, log
        self._met.connect(self._tell)

    def install(self) -> None:
        sys.excepthook = self.hook

    def hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Takes what nobody caught, on any thread."""
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now():%H:%M:%S}  {text}")
        except OSError:
            sys.stderr.write("(and the log can't be written)\n")
        self._met.emit(f"Something unexpected happened: {error!r}. The log has the details (Ctrl+Shift+L).")

    @Slot(str)
    def _tell(self, words: str) -> None:
        self._session.notify(words)


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
