"""A model one doesn't have: named on the Hugging Face Hub, or picked of those whose shape comes with the program."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QListWidget, QListWidgetItem, QWidget

from layerlight.ui.controls import button, column, label, row
from layerlight.ui.shelf import Shelf

WHAT = (
    "Only its config and the headers of its files are read, no weights. It is planned and drawn, and can’t be loaded."
)


class UnseenDialog(QDialog):
    """`named` carries `org/name` as it was typed, `picked` the name of a bundled shape."""

    named = Signal(str)
    picked = Signal(str)

    def __init__(self, shelf: Shelf, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Plan a model you don’t have")
        self.setMinimumWidth(460)
        self._shelf = shelf
        self.field = QLineEdit()
        self.field.setPlaceholderText("organisation/name")
        self.field.setAccessibleName("Name on the Hugging Face Hub")
        self.field.textChanged.connect(self._update_button)
        self.plan_button = button("Plan it", "primary")
        self.plan_button.setDefault(True)
        self.plan_button.clicked.connect(self._name)
        line = row(gap=8)
        line.addWidget(self.field, 1)
        line.addWidget(self.plan_button)
        self.shapes = QListWidget()
        self.shapes.setAccessibleName("Known shapes")
        self.shapes.itemActivated.connect(self._pick)
        close = button("Close")
        close.clicked.connect(self.reject)
        self.setLayout(
            column(
                label("Plan a model you don’t have", size=16, weight=600), label("Name on the Hugging Face Hub"),
                line, label(WHAT, "3", wrap=True), 8, label("Or one of the known shapes, without any network"),
                self.shapes, row(None, close), margins=(20, 20, 20, 16),
            )
        )  # fmt: skip
        shelf.filled.connect(self._fill)
        self._update_button()

    def showEvent(self, _event: QShowEvent) -> None:
        self._shelf.fill()
        self._fill()
        self.field.setFocus()
        self.field.selectAll()

    @Slot()
    def _fill(self) -> None:
        if self.shapes.count() == len(self._shelf.models):
            return
        self.shapes.clear()
        for shape in self._shelf.models:
            item = QListWidgetItem(shape.words)
            item.setData(Qt.ItemDataRole.UserRole, shape.name)
            self.shapes.addItem(item)

    @Slot()
    def _update_button(self) -> None:
        self.plan_button.setEnabled(bool(self.field.text().strip()))

    @Slot()
    def _name(self) -> None:
        self.accept()
        self.named.emit(self.field.text().strip())

    @Slot(QListWidgetItem)
    def _pick(self, item: QListWidgetItem) -> None:
        self.accept()
        self.picked.emit(str(item.data(Qt.ItemDataRole.UserRole)))
