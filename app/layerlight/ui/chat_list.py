"""The list of past chats: an item model over plain values, and how a row is drawn."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QDateTime,
    QLocale,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from layerlight.store.chats import Conversation
from layerlight.ui.controls import draw_words
from layerlight.ui.palette import theme_of
from layerlight.ui.theme import font
from layerlight.ui.words import plural

Index = QModelIndex | QPersistentModelIndex
ROW = 48
WHOLE = Qt.ItemDataRole.UserRole
"""The Conversation itself."""
SECOND = Qt.ItemDataRole.UserRole + 1
"""The second line: when, and how many questions."""
UNNAMED = "Untitled"


class ChatList(QAbstractListModel):
    """Reads on when a view comes near its end."""

    more_wanted = Signal(int)
    """Those after the first so many."""
    renamed = Signal(int, str)
    """(conversation, title)."""

    def __init__(self) -> None:
        super().__init__()
        self.conversations: tuple[Conversation, ...] = ()
        self._more = False
        self._current: int | None = None

    def show_page(self, skip: int, conversations: tuple[Conversation, ...], more: bool) -> None:
        """Puts a page after the first `skip`; in place of all when it is the first."""
        self._more = more
        if skip and skip == len(self.conversations):
            self.beginInsertRows(QModelIndex(), skip, skip + len(conversations) - 1)
            self.conversations += conversations
            self.endInsertRows()
        elif not skip and conversations != self.conversations:
            self.beginResetModel()
            self.conversations = conversations
            self.endResetModel()

    def mark(self, current: int | None) -> None:
        """This conversation is the one on the screen."""
        if current != self._current:
            self._current = current
            self.dataChanged.emit(self.index(0), self.index(len(self.conversations) - 1))

    def row_of(self, number: int) -> int | None:
        return next((row for row, each in enumerate(self.conversations) if each.id == number), None)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own signature
        return 0 if parent.isValid() else len(self.conversations)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not 0 <= index.row() < len(self.conversations):
            return None
        each = self.conversations[index.row()]
        title = each.title or UNNAMED
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.ToolTipRole:
                return title
            case Qt.ItemDataRole.EditRole:
                return each.title
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{title}, {self._second(each)}"
            case _ if role == WHOLE:
                return each
            case _ if role == SECOND:
                return self._second(each)
            case _:
                return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or not index.isValid() or not str(value).strip():
            return False
        self.renamed.emit(self.conversations[index.row()].id, str(value))
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def canFetchMore(self, parent: Index) -> bool:
        return self._more and not parent.isValid()

    def fetchMore(self, _parent: Index) -> None:
        self._more = False  # until its answer is there
        self.more_wanted.emit(len(self.conversations))

    def _second(self, each: Conversation) -> str:
        words = f"{when(each.changed)} · {each.excerpt or plural(each.questions, 'question')}"
        return f"{words} · open now" if each.id == self._current else words


class ChatRow(QStyledItemDelegate):
    """A title over when it was and how much was asked."""

    def sizeHint(self, _option: QStyleOptionViewItem, _index: Index) -> QSize:
        return QSize(160, ROW)

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        widget, rect, state = _of(option)
        t, box = theme_of(widget.window()), QRectF(rect).adjusted(1, 1, -1, -1)
        p.save()
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        if chosen or state & QStyle.StateFlag.State_MouseOver:
            focused = chosen and widget.hasFocus()
            p.setPen(QPen(QColor(t.ink if focused else t.line), 2 if focused else 1))
            p.setBrush(QColor(t.window))
            p.drawRoundedRect(box, 7, 7)
        words = box.adjusted(9, 4, -9, -4)
        upper = QRectF(words.left(), words.top(), words.width(), words.height() / 2)
        title, second = str(index.data()), str(index.data(SECOND))
        draw_words(p, upper, _fitting(title, upper.width(), 13, 500), t.ink, 13, 500)
        draw_words(p, upper.translated(0, upper.height()), _fitting(second, upper.width(), 12), t.ink3, 12)
        p.restore()

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, _index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setAccessibleName("Title of the chat")
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, _index: Index) -> None:
        _, rect, _ = _of(option)
        editor.setGeometry(rect.adjusted(1, 1, -1, -1))

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text())


def _fitting(words: str, width: float, size: int, weight: int = 400) -> str:
    return QFontMetricsF(font(size, weight)).elidedText(words, Qt.TextElideMode.ElideRight, width)


def when(moment: float, now: QDateTime | None = None) -> str:
    """`14:02` today, `Yesterday 14:02`, `12 Nov`, `12 Nov 2025` in another year; in the system's own form of a time."""
    then, now = QDateTime.fromSecsSinceEpoch(round(moment)), now or QDateTime.currentDateTime()
    locale, days = QLocale(), then.date().daysTo(now.date())
    time = locale.toString(then.time(), QLocale.FormatType.ShortFormat)
    if days == 0:
        return time
    if days == 1:
        return f"Yesterday {time}"
    return locale.toString(then.date(), "d MMM" if then.date().year() == now.date().year() else "d MMM yyyy")


def _of(option: QStyleOptionViewItem) -> tuple[QWidget, QRect, QStyle.StateFlag]:
    """(widget, rectangle, state): fields that the bindings' type hints leave out."""
    return option.widget, option.rect, option.state
