"""Whether the system asks for less motion; then the light on the map moves twice a second, not thirty times."""

from __future__ import annotations

import configparser
import plistlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

if TYPE_CHECKING:
    from layerlight.ui.session import Session

GNOME = ("gsettings", "get", "org.gnome.desktop.interface", "enable-animations")
CLIENT_AREA_ANIMATION = 0x1042
"""Windows' SPI_GETCLIENTAREAANIMATION."""
PATIENCE = 3.0
"""Seconds that a desktop has for its answer."""


class SystemMotion(QObject):
    """Asks on a thread: some systems answer only through a program of theirs."""

    _found = Signal(bool)

    def __init__(self, session: Session, read: Callable[[], bool] | None = None) -> None:
        super().__init__(session)
        self._session, self._read = session, read or reduces_motion
        self._found.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def start(self, after: int = 0) -> None:
        """`after` so many ms, when nothing else waits."""
        QTimer.singleShot(after, self, self._begin)

    @Slot()
    def _begin(self) -> None:
        threading.Thread(target=self._run, name="motion", daemon=True).start()

    def _run(self) -> None:
        found = self._read()
        try:
            self._found.emit(found)
        except RuntimeError:
            return  # the window is gone

    @Slot(bool)
    def _take(self, reduced: bool) -> None:
        self._session.take_system_motion(reduced)


def reduces_motion(
    system: str = sys.platform, home: Path | None = None, ask: Callable[[tuple[str, ...]], str] | None = None
) -> bool:
    """What the desktop's own settings say; False where they say nothing. `ask` runs a command and gives its output."""
    home = home or Path.home()
    if system == "win32":
        return _windows_stands_still()
    if system == "darwin":
        return _mac_stands_still(home)
    return _kde_stands_still(home) or _gtk_stands_still(home) or (ask or _asked)(GNOME).strip() == "false"


def _windows_stands_still() -> bool:
    if sys.platform == "win32":
        import ctypes

        animated = ctypes.c_int(1)
        asked = ctypes.windll.user32.SystemParametersInfoW(CLIENT_AREA_ANIMATION, 0, ctypes.byref(animated), 0)
        return bool(asked) and not animated.value
    return False


def _mac_stands_still(home: Path) -> bool:
    try:
        with open(home / "Library" / "Preferences" / "com.apple.universalaccess.plist", "rb") as file:
            found = plistlib.load(file)
    except (OSError, ValueError, plistlib.InvalidFileException):
        return False
    return isinstance(found, dict) and bool(found.get("reduceMotion"))


def _kde_stands_still(home: Path) -> bool:
    try:
        return float(_setting(home / ".config" / "kdeglobals", "KDE", "AnimationDurationFactor")) == 0
    except ValueError:
        return False


def _gtk_stands_still(home: Path) -> bool:
    said = (
        _setting(home / ".config" / f"gtk-{version}" / "settings.ini", "Settings", "gtk-enable-animations")
        for version in ("4.0", "3.0")
    )
    return next((each.strip().lower() in ("0", "false") for each in said if each), False)


def _setting(path: Path, section: str, key: str) -> str:
    """Empty where there is none, or no such file."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, ValueError, configparser.Error):
        return ""
    return parser.get(section, key, fallback="") or ""


def _asked(command: tuple[str, ...]) -> str:
    """Its output; empty where there is no such program, or it has no answer."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
