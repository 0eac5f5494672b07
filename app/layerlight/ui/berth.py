"""A berth: a place in the window that a part takes later, so that no single step finds a style for many controls."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtWidgets import QVBoxLayout, QWidget

from layerlight.ui.steps import polish


class Berth(QWidget):
    """Takes one part and is as large as that wants to be."""

    def __init__(self, part: QWidget) -> None:
        """`part` is waited for: it comes with `take`."""
        super().__init__()
        self._part = part
        self._inside = QVBoxLayout(self)
        self._inside.setContentsMargins(0, 0, 0, 0)
        self.setSizePolicy(part.sizePolicy())

    def take(self) -> Iterator[None]:
        """The part comes in, and its controls find their style, in steps."""
        self._inside.addWidget(self._part)
        yield
        yield from polish(self._part)
