"""About: what runs here, in which versions, and where its log is."""

from __future__ import annotations

import platform
from functools import partial
from pathlib import Path

import PySide6
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QDialog, QWidget

import layerlight
from layerlight.core.state import State
from layerlight.ui.controls import button, column, label, row

PURPOSE = "Runs language models on the machine you have, and shows where every layer lives."


def versions_of(state: State) -> tuple[tuple[str, str], ...]:
    """(name, version) of the program, its Python, Qt, and what the engine told."""
    own = (
        ("Layerlight", layerlight.__version__),
        ("Python", platform.python_version()),
        ("PySide6", PySide6.__version__),
        ("System", platform.platform(terse=True)),
    )
    return own + state.versions


class AboutDialog(QDialog):
    def __init__(self, state: State, log: Path, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("About Layerlight")
        self.setMinimumWidth(420)
        self.text = "\n".join(f"{name} {version}" for name, version in versions_of(state))
        self._log = log
        copy = button("Copy")
        copy.clicked.connect(self._copy)
        self.log_button = button("Show the log’s folder")
        self.log_button.setToolTip(str(log))
        self.log_button.clicked.connect(partial(self._open_folder))
        close = button("Close", "primary")
        close.clicked.connect(self.accept)
        said = label(self.text, "mono")
        said.setAccessibleName("Versions")
        later = label("" if state.versions else "The engine’s libraries are named once it has warmed up.", "3")
        self.setLayout(
            column(
                label("Layerlight", size=20, weight=600),
                label(PURPOSE, "2", wrap=True),
                8, said, later, label(f"Log: {log}", "3", wrap=True), label("Licence: Apache-2.0", "3"), 8,
                row(copy, self.log_button, None, close), margins=(20, 20, 20, 16),
            )
        )  # fmt: skip

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text)

    def _open_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._log.parent)))
