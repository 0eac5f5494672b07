"""The chats there were: searched, opened, renamed, saved, deleted and brought back."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QModelIndex, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QContextMenuEvent, QKeyEvent, QKeySequence, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QFileDialog, QFrame, QLineEdit, QListView, QMenu, QToolButton, QWidget

from layerlight.core.state import State
from layerlight.store.chats import Conversation
from layerlight.ui.chat_list import UNNAMED, WHOLE, ChatList, ChatRow
from layerlight.ui.controls import Elided, button, column, framed, label, row
from layerlight.ui.conversations import Listing
from layerlight.ui.happenings import ConversationChanged
from layerlight.ui.session import Session

PAUSE = 120
"""ms without a key before it is searched."""
KINDS = {"Markdown (*.md)": ".md", "JSON, with all that repeats it (*.json)": ".json"}


class PastChats(QWidget):
    """A search over a list; everything in it is done by mouse, by keys and from its menu."""

    left = Signal()
    """A chat was opened, or this was put away."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._words = ""
        self._stale = True
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search your chats")
        self.search.setAccessibleName("Search your chats")
        self.search.setClearButtonEnabled(True)
        for clear in self.search.findChildren(QToolButton):
            clear.setAccessibleName("Clear the search")
        self.list = ChatList()
        self.view = ChatsView(self.list)
        self._nothing = label("", "3", wrap=True)
        self._nothing.hide()
        self.open_button = button("Open", "primary")
        self.rename_button = button("Rename", "quiet", "F2")
        self.save_button = button("Save…", "quiet", "As Markdown or JSON")
        self.delete_button = button("Delete", "quiet", "It can be brought back until the program ends")
        self._deleted = Elided("", "3", mode=Qt.TextElideMode.ElideMiddle)
        self.undo_button = button("Bring back", "quiet", "Undoes the deletion")
        line = row(margins=(10, 2, 4, 2))
        line.addWidget(self._deleted, 1)
        line.addWidget(self.undo_button)
        self._undo = framed(line, "card")
        self._undo.hide()
        box = column(self.search, self._nothing, gap=8)
        box.addWidget(self.view, 1)
        box.addWidget(self._undo)
        box.addLayout(row(self.rename_button, self.save_button, self.delete_button, None, self.open_button, gap=2))
        self.setLayout(box)
        self._typing = QTimer(self, singleShot=True, interval=PAUSE)
        self._typing.timeout.connect(self._find)
        self._connect()
        self._update_buttons()

    def _connect(self) -> None:
        session = self._session
        self.search.textChanged.connect(self._typing.start)
        self.search.returnPressed.connect(self._open_first)
        self.list.more_wanted.connect(self._find_more)
        self.list.renamed.connect(session.conversations.rename)
        self.list.modelReset.connect(self._update_buttons)
        self.view.selectionModel().currentChanged.connect(self._update_buttons)
        self.view.keyed.connect(self._do)
        self.view.doubleClicked.connect(self._open)
        self.view.asked.connect(self._show_menu)
        self.open_button.clicked.connect(self._open)
        self.rename_button.clicked.connect(self._rename)
        self.save_button.clicked.connect(self._save)
        self.delete_button.clicked.connect(self._delete)
        self.undo_button.clicked.connect(session.conversations.bring_back)
        session.conversations.listed.connect(self._take)
        session.changed.connect(self._changed)

    @property
    def chosen(self) -> Conversation | None:
        found = self.view.currentIndex().data(WHOLE)
        return found if isinstance(found, Conversation) else None

    @property
    def deleted_words(self) -> str:
        """What is said of the chat deleted last, while it can be brought back."""
        return "" if self._undo.isHidden() else self._deleted.accessibleName()

    @property
    def nothing_words(self) -> str:
        return "" if self._nothing.isHidden() else self._nothing.text()

    # -- the list ------------------------------------------------------------------------------------------------

    @Slot()
    def _find(self) -> None:
        self._typing.stop()
        self._words = self.search.text().strip()
        self._session.conversations.find(self._words)

    @Slot(int)
    def _find_more(self, skip: int) -> None:
        self._session.conversations.find(self._words, skip)

    @Slot(object)
    def _take(self, found: Listing) -> None:
        """Keeps what is chosen; of a new search the first is."""
        chosen, row_before = self.chosen, self.view.currentIndex().row()
        self.list.show_page(found.skip, found.conversations, found.more)
        self._tell_current()
        again = self.list.row_of(chosen.id) if chosen is not None else 0
        there = again if again is not None else min(row_before, self.list.rowCount() - 1)
        if there >= 0 and self.view.currentIndex().row() != there:
            self.view.setCurrentIndex(self.list.index(there))
        empty = not self.list.rowCount()
        self._nothing.setVisible(empty)
        self._nothing.setText("No chat holds these words." if found.words else "What you ask is kept, and found here.")
        self._update_buttons()

    def _tell_current(self) -> None:
        current = self._session.conversations.current
        self.list.mark(current.id if current is not None else None)

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not isinstance(event, ConversationChanged):
            return
        deleted = self._session.conversations.deleted
        self._undo.setVisible(deleted is not None)
        if deleted is not None:
            self._deleted.say(f"“{deleted.title or UNNAMED}” is deleted.")
        if self.isVisible():
            self._find()
        else:
            self._stale = True

    def showEvent(self, _event: QShowEvent) -> None:
        if self._stale:
            self._stale = False
            self._find()

    # -- what a person does --------------------------------------------------------------------------------------

    @Slot(str)
    def _do(self, key: str) -> None:
        {
            "open": self._open, "rename": self._rename, "delete": self._delete, "leave": self.left.emit,
            "undo": self._session.conversations.bring_back,
        }[key]()  # fmt: skip

    @Slot()
    def _open_first(self) -> None:
        """Enter in the search opens what is chosen, once the search has been answered."""
        if self._typing.isActive():
            self._find()
        else:
            self._open()

    @Slot()
    def _open(self) -> None:
        chosen = self.chosen
        if chosen is not None:
            self._session.conversations.open(chosen.id)
            self.left.emit()

    @Slot()
    def _rename(self) -> None:
        if self.chosen is not None:
            self.view.setFocus()
            self.view.edit(self.view.currentIndex())

    @Slot()
    def _delete(self) -> None:
        chosen = self.chosen
        if chosen is not None:
            self._session.conversations.delete(chosen)

    @Slot()
    def _save(self) -> None:
        chosen = self.chosen
        if chosen is not None:
            save_chat(self, self._session, chosen)

    def menu(self) -> QMenu:
        """What can be done with the chosen chat."""
        menu, chosen = QMenu(self), self.chosen
        if chosen is None:
            return menu
        menu.addAction("Open\tEnter", self._open)
        menu.addAction("Rename\tF2", self._rename)
        menu.addSeparator()
        menu.addAction("Copy as Markdown", lambda: self._session.conversations.copy(chosen.id))
        menu.addAction("Save as Markdown or JSON…", self._save)
        menu.addSeparator()
        menu.addAction("Delete\tDel", self._delete)
        return menu

    @Slot(QPoint)
    def _show_menu(self, at: QPoint) -> None:
        if self.chosen is not None:
            menu = self.menu()
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(at)

    @Slot()
    def _update_buttons(self) -> None:
        there = self.chosen is not None
        for each in (self.open_button, self.rename_button, self.save_button, self.delete_button):
            each.setEnabled(there)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Also from the search: Escape leaves, arrows go into the list."""
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and self.list.rowCount():
            self.view.setFocus(Qt.FocusReason.ShortcutFocusReason)
        else:
            super().keyPressEvent(event)


class ChatsView(QListView):
    """Keys are told to whoever does what they ask."""

    keyed = Signal(str)
    """`open`, `rename`, `delete`, `undo` or `leave`."""
    asked = Signal(QPoint)
    """The menu was asked for here, on the screen."""

    def __init__(self, chats: ChatList) -> None:
        super().__init__()
        self.setModel(chats)
        self.setItemDelegate(ChatRow(self))
        self.setAccessibleName("Chats")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = {
            Qt.Key.Key_Return: "open", Qt.Key.Key_Enter: "open", Qt.Key.Key_F2: "rename",
            Qt.Key.Key_Delete: "delete", Qt.Key.Key_Escape: "leave",
        }  # fmt: skip
        if self.state() == QAbstractItemView.State.EditingState:  # what its field leaves over comes here
            super().keyPressEvent(event)
        elif event.matches(QKeySequence.StandardKey.Undo):
            self.keyed.emit("undo")
        elif Qt.Key(event.key()) in keys:
            self.keyed.emit(keys[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            self.asked.emit(self.viewport().mapToGlobal(self.visualRect(self.currentIndex()).center()))
            return
        under: QModelIndex = self.indexAt(event.pos())
        if under.isValid():
            self.setCurrentIndex(under)
            self.asked.emit(event.globalPos())


def save_chat(parent: QWidget, session: Session, conversation: Conversation) -> None:
    """Asks where to, and as what."""
    name = "".join(each if each.isalnum() or each in " -_" else " " for each in conversation.title)
    start = Path.home() / f"{' '.join(name.split())[:60] or 'chat'}.md"
    path, kind = QFileDialog.getSaveFileName(parent, "Save the chat", str(start), ";;".join(KINDS))
    if path:
        chosen = Path(path)
        ending = KINDS.get(kind, ".md")
        if chosen.suffix.lower() not in KINDS.values() or kind.startswith("JSON"):
            chosen = chosen.with_suffix(ending) if chosen.suffix.lower() in KINDS.values() else Path(path + ending)
        session.conversations.save(conversation.id, chosen)
