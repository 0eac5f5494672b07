"""The map's twin: the same layers as a table that can be sorted, filtered, copied, read aloud and moved from."""

from __future__ import annotations

import re
import time

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, QSortFilterProxyModel, Qt, Signal, Slot
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QKeyEvent, QKeySequence, QShowEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QHeaderView,
    QLineEdit,
    QMenu,
    QTableView,
    QToolButton,
    QWidget,
)

from layerlight.core.messages import LayerRan
from layerlight.core.state import State
from layerlight.ui.controls import button, column, label, row
from layerlight.ui.lanes import Lane
from layerlight.ui.layer_table import COLUMNS, SORT, LayerTable, rows_of
from layerlight.ui.map_hand import letters_of
from layerlight.ui.move_menu import move_menu
from layerlight.ui.session import Session
from layerlight.ui.words import plural

ROW_HEIGHT = 24
EVERY = 1.0
"""Seconds between two updates while layers run: faster than this nobody reads."""
WIDTHS = (112, 104, 104, 80, 80, 76, 60, 72, 100, 76, 80, 80, 92, 190, 420)
"""Of the columns, in px."""
COMMANDS = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier


class LayerList(QWidget):
    """A filter over a table. Every action of the map is in it too."""

    focused = Signal(str)
    """A layer's name."""
    moved = Signal()
    """Layers were moved by hand."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._prefer_next = False
        self._shown = 0.0
        self._stale = True
        self.table = LayerTable(self)
        self._sorted = Rows(self)
        self._sorted.setSourceModel(self.table)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText("Filter: layer 12, disk…")
        self.filter.setAccessibleName("Filter the layers")
        self.filter.setClearButtonEnabled(True)
        for clear in self.filter.findChildren(QToolButton):
            clear.setAccessibleName("Clear the filter")
        self.filter.setMinimumWidth(240)
        self.filter.textChanged.connect(self._narrow)
        self._count = label("", "3")
        self.copy_button = button("Copy", "quiet", "What is chosen, or all of it, as text for a sheet or a post")
        self.copy_button.clicked.connect(self.copy)
        self.view = Grid(self._sorted)
        self.view.keyed.connect(self._keyed)
        self.view.asked.connect(self._ask)
        self.view.selectionModel().currentRowChanged.connect(self._tell_focus)
        self.setFocusProxy(self.view)
        self.setLayout(
            column(row(self.filter, self._count, None, self.copy_button), self.view, margins=(16, 4, 16, 8), gap=6)
        )
        session.changed.connect(self._changed)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the selected layers, in the model's order."""
        rows = sorted({self._sorted.mapToSource(each).row() for each in self.view.selectionModel().selectedRows()})
        return tuple(self.table.rows[number].unit.key for number in rows)

    def prefer_next(self, prefer: bool) -> None:
        """Shows the plan being made instead of what is in memory."""
        if prefer != self._prefer_next:
            self._prefer_next = prefer
            self._refresh()

    def choose(self, layers: tuple[str, ...]) -> None:
        """Selects layers by their names."""
        model = self.view.selectionModel()
        model.clearSelection()
        how = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
        for number, each in enumerate(self.table.rows):
            if each.unit.key in layers:
                at = self._sorted.mapFromSource(self.table.index(number, 0))
                model.select(at, how)
                if each.unit.key == layers[0]:
                    model.setCurrentIndex(at, QItemSelectionModel.SelectionFlag.NoUpdate)
                    self.view.scrollTo(at)

    @Slot()
    def copy(self) -> None:
        """Puts the selected rows, or all that are shown, on the clipboard: a line each, tabs between."""
        QGuiApplication.clipboard().setText(self.text())

    def text(self) -> str:
        """Titles and rows as they are sorted, with tabs between."""
        picked = sorted(each.row() for each in self.view.selectionModel().selectedRows())
        rows = picked or range(self._sorted.rowCount())
        lines = ["\t".join(each.title for each in COLUMNS)]
        for number in rows:
            cells = (self._sorted.index(number, at).data() for at in range(len(COLUMNS)))
            lines.append("\t".join(" ".join(str(cell).split()) for cell in cells))
        return "\n".join(lines)

    def menu(self) -> QMenu:
        """What can be done with the selected layers."""
        return move_menu(self, self._session, self._lanes(), self.chosen, self._move, self._reset)

    # -- from the session ----------------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not self.isVisible():
            self._stale = True
        elif not isinstance(event, LayerRan) or time.monotonic() - self._shown > EVERY:
            self._refresh()

    def showEvent(self, _event: QShowEvent) -> None:
        if self._stale:
            self._refresh()

    def _refresh(self) -> None:
        self._stale, self._shown = False, time.monotonic()
        chosen = self.chosen
        self.table.show_rows(rows_of(self._lanes(), self._session.state, self._prefer_next))
        if chosen != self.chosen:
            self.choose(chosen)
        self._tell_count()

    def _lanes(self) -> tuple[Lane, ...]:
        return self._session.lanes(self._prefer_next)

    # -- what a person does --------------------------------------------------------------------------------------

    @Slot(str)
    def _narrow(self, words: str) -> None:
        self._sorted.narrow(words)
        self._tell_count()

    def _tell_count(self) -> None:
        shown, all_of_them = self._sorted.rowCount(), self.table.rowCount()
        self._count.setText(
            plural(all_of_them, "layer") if shown == all_of_them else f"{shown} of {plural(all_of_them, 'layer')}"
        )

    @Slot(QModelIndex)
    def _tell_focus(self, now: QModelIndex) -> None:
        if now.isValid():
            self.focused.emit(self.table.rows[self._sorted.mapToSource(now).row()].unit.key)

    @Slot(str)
    def _keyed(self, key: str) -> None:
        if key == "copy":
            self.copy()
        elif key == "free":
            self._move(None)
        elif key in (letters := letters_of(self._lanes())):
            self._move(letters[key])

    @Slot(QPoint)
    def _ask(self, at: QPoint) -> None:
        if self.chosen and self._can_move():
            menu = self.menu()
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(at)

    def _can_move(self) -> bool:
        return not self._session.busy and self._session.state.plan is not None

    def _move(self, place: str | None) -> None:
        if self.chosen and self._can_move():
            self._session.pin(self.chosen, place)
            self.moved.emit()

    def _reset(self) -> None:
        self._session.reset_plan()
        self.moved.emit()


class Rows(QSortFilterProxyModel):
    """Sorted by values, filtered by terms between commas: each must begin a word somewhere in the row."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._terms: tuple[str, ...] = ()
        self.setSortRole(SORT)
        self.setDynamicSortFilter(True)

    def narrow(self, words: str) -> None:
        self.beginFilterChange()
        self._terms = tuple(term for term in (each.strip() for each in words.casefold().split(",")) if term)
        self.endFilterChange()

    def filterAcceptsRow(self, number: int, parent: QModelIndex) -> bool:  # type: ignore[override]
        source = self.sourceModel()
        cells = [str(source.index(number, at, parent).data()).casefold() for at in range(len(COLUMNS))]
        return all(any(re.search(rf"\b{re.escape(term)}", cell) for cell in cells) for term in self._terms)


class Grid(QTableView):
    """Whole rows are selected; letters and Delete go to whoever moves layers."""

    keyed = Signal(str)
    """`copy`, `free`, or a letter."""
    asked = Signal(QPoint)
    """The menu was asked for here, on the screen."""

    def __init__(self, rows: QSortFilterProxyModel) -> None:
        super().__init__()
        self.setModel(rows)
        self.setAccessibleName("Layers")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setShowGrid(False)
        self.setCornerButtonEnabled(False)
        for corner in self.findChildren(QAbstractButton):
            corner.setAccessibleName("Choose all layers")
        self.setWordWrap(False)
        self.setSortingEnabled(True)
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        header.setHighlightSections(False)
        header.setFixedHeight(30)
        for number, width in enumerate(WIDTHS):
            self.setColumnWidth(number, width)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.keyed.emit("copy")
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.keyed.emit("free")
        elif event.text().isalpha() and not event.modifiers() & COMMANDS:
            self.keyed.emit(event.text().upper())
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            here = self.visualRect(self.currentIndex()).center()
            self.asked.emit(self.viewport().mapToGlobal(here))
        else:
            self.asked.emit(event.globalPos())
