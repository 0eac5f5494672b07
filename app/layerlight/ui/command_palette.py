"""The command palette: every command by a few of its letters, without the mouse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Slot,
)
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QFocusEvent,
    QFontMetricsF,
    QKeyEvent,
    QPainter,
)
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from layerlight.ui.commands import Command, found
from layerlight.ui.controls import column, draw_words, label
from layerlight.ui.palette import theme_of
from layerlight.ui.theme import font

Index = QModelIndex | QPersistentModelIndex
WIDTH = 580
TOP = 56
ROW = 32
MOST_ROWS = 11
"""That are seen at once."""
REMEMBERED = 5
COMMAND = Qt.ItemDataRole.UserRole
STEPS = {
    Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_Tab: 1, Qt.Key.Key_Backtab: -1,
    Qt.Key.Key_PageDown: MOST_ROWS - 1, Qt.Key.Key_PageUp: 1 - MOST_ROWS,
}  # fmt: skip


class CommandPalette(QFrame):
    """Lies over the window while it is open; Enter does what is chosen, Escape or a click beside it closes it."""

    def __init__(self, collect: Callable[[], tuple[Command, ...]], parent: QWidget) -> None:
        """`collect` gives the commands there are, each time it is opened."""
        super().__init__(parent)
        self.setObjectName("overlay")
        self._collect, self._over = collect, parent
        self._commands: tuple[Command, ...] = ()
        self._used: tuple[str, ...] = ()
        self._before: QWidget | None = None
        self.field = QLineEdit()
        self.field.setPlaceholderText("What do you want to do?")
        self.field.setAccessibleName("Search commands")
        self.field.textChanged.connect(self._narrow)
        self.field.installEventFilter(self)
        self.list = CommandList()
        self.view = QListView()
        self.view.setModel(self.list)
        self.view.setItemDelegate(CommandRow(self.view))
        self.view.setAccessibleName("Commands")
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setUniformItemSizes(True)
        self.view.setMouseTracking(True)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.viewport().setAutoFillBackground(False)
        self.view.clicked.connect(self.run)
        self.view.selectionModel().currentChanged.connect(self._tell)
        self._nothing = label("No command fits these words.", "3")
        self._box = column(self.field, self._nothing, self.view, margins=(10, 10, 10, 10), gap=6)
        self.setLayout(self._box)
        self.hide()

    @property
    def chosen(self) -> Command | None:
        found_here = self.view.currentIndex().data(COMMAND)
        return found_here if isinstance(found_here, Command) else None

    @property
    def shown(self) -> list[str]:
        """What the commands in the list are called."""
        return [each.words for each in self.list.commands]

    # -- open and closed -------------------------------------------------------------------------------------------

    @Slot()
    def toggle(self) -> None:
        if self.isVisible():
            self.close_up()
        else:
            self.open()

    def open(self) -> None:
        """With nothing typed; the keyboard's focus comes back to where it was when this closes."""
        self._before = QApplication.focusWidget()
        self._commands = self._collect()
        self.field.clear()
        self._narrow()
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    @Slot()
    def refill(self) -> None:
        """Reads the menus again while it is open: what they hold has changed."""
        if self.isVisible():
            self._commands = self._collect()
            self._narrow()

    @Slot()
    def close_up(self) -> None:
        had = self.field.hasFocus()
        self.hide()
        if had and self._before is not None:
            self._before.setFocus(Qt.FocusReason.PopupFocusReason)
        self._before = None

    @Slot()
    def run(self) -> None:
        """Does what is chosen, with the focus where it was before."""
        chosen = self.chosen
        if chosen is None or not chosen.possible:
            return
        self._used = (chosen.words, *(each for each in self._used if each != chosen.words))[:REMEMBERED]
        self.close_up()
        chosen.action.trigger()

    # -- the list ------------------------------------------------------------------------------------------------

    @Slot()
    def _narrow(self) -> None:
        commands = found(self._commands, self.field.text(), self._used)
        self.list.show_commands(commands)
        self._nothing.setVisible(not commands)
        self.view.setCurrentIndex(self.list.index(0))
        self.view.setFixedHeight(min(MOST_ROWS, max(1, len(commands))) * ROW + 2)
        self._place()

    def _place(self) -> None:
        room = self._over.width()
        wide = min(WIDTH, room - 32)
        self._box.activate()
        self.setGeometry((room - wide) // 2, TOP, wide, self.sizeHint().height())

    @Slot()
    def _tell(self) -> None:
        """A reader of the screen hears what is chosen: the focus stays where it is typed."""
        chosen = self.chosen
        if chosen is not None and self.isVisible() and QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self.field, _spoken(chosen)))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            return self._keyed(event)
        lost = isinstance(event, QFocusEvent) and event.lostFocus()
        if watched is self.field and lost and event.reason() not in (  # type: ignore[attr-defined]
            Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason,
        ):  # fmt: skip
            self.hide()
        return super().eventFilter(watched, event)

    def _keyed(self, event: QKeyEvent) -> bool:
        """Whether a key was ours."""
        key = Qt.Key(event.key())
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.run()
        elif key == Qt.Key.Key_Escape:
            self.close_up()
        elif key in STEPS and self.list.commands:
            last = len(self.list.commands) - 1
            now, step = self.view.currentIndex().row(), STEPS[key]
            there = (now + step) % (last + 1) if abs(step) == 1 else max(0, min(last, now + step))
            self.view.setCurrentIndex(self.list.index(there))
        else:
            return False
        return True


class CommandList(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.commands: tuple[Command, ...] = ()

    def show_commands(self, commands: tuple[Command, ...]) -> None:
        self.beginResetModel()
        self.commands = commands
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own signature
        return 0 if parent.isValid() else len(self.commands)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not 0 <= index.row() < len(self.commands):
            return None
        each = self.commands[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return each.words
            case Qt.ItemDataRole.AccessibleTextRole:
                return _spoken(each)
            case _ if role == COMMAND:
                return each
            case _:
                return None


class CommandRow(QStyledItemDelegate):
    """What it is called at the left; its menu and its keys at the right."""

    def sizeHint(self, _option: QStyleOptionViewItem, _index: Index) -> QSize:
        return QSize(200, ROW)

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        command = index.data(COMMAND)
        if not isinstance(command, Command):
            return
        t, box = theme_of(option.widget.window()), QRectF(option.rect).adjusted(1, 1, -1, -1)
        p.save()
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & (QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_MouseOver):
            p.setPen(QColor(t.edge if option.state & QStyle.StateFlag.State_Selected else t.line))
            p.setBrush(QColor(t.window))
            p.drawRoundedRect(box, 6, 6)
        line = box.adjusted(10, 0, -10, 0)
        right = Qt.AlignmentFlag.AlignRight
        beside = f"{command.menu}   {command.keys}" if command.keys else command.menu
        draw_words(p, line, beside, t.ink3, 12, align=right)
        room = line.width() - QFontMetricsF(font(12)).horizontalAdvance(beside) - 16
        words = QFontMetricsF(font(13)).elidedText(command.words, Qt.TextElideMode.ElideRight, room)
        draw_words(p, line, words, t.ink if command.possible else t.ink3, 13)
        p.restore()


def _spoken(command: Command) -> str:
    words = ", ".join(each for each in (command.words, command.keys) if each)
    return words if command.possible else f"{words}, not possible now"
