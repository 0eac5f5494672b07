"""Past conversations: found, opened, renamed, deleted and brought back, copied and saved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication

from layerlight.core.errors import LayerlightError, StoreFailed
from layerlight.store.chat_export import as_json, as_markdown, write_chat
from layerlight.store.chats import ChatStore, Conversation
from layerlight.store.turns import Turn
from layerlight.ui.happenings import ConversationChanged

if TYPE_CHECKING:
    from layerlight.ui.session import Session

PAGE = 60
"""Conversations that are read at once."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the conversations that hold `words`, after the first `skip` of them."""

    words: str
    skip: int
    conversations: tuple[Conversation, ...]

    @property
    def more(self) -> bool:
        return len(self.conversations) == PAGE


class Conversations(QObject):
    """What takes long is read on a thread, by a store of its own on the same file; what is written is short."""

    listed = Signal(object)
    """A Listing: the answer to the newest `find`."""
    _done = Signal(object, object)
    """(what is to be done with it, what was read on a thread)."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._session = session
        self._closed = False
        self._finding = False
        self._next: tuple[str, int] | None = None
        """The search that is wanted once the one that runs has ended."""
        self._opening: object = None
        self._deleted: list[tuple[Conversation, bool]] = []
        """With each whether it was the one on the screen."""
        self._done.connect(self._take, Qt.ConnectionType.QueuedConnection)

    @property
    def current(self) -> Conversation | None:
        """The conversation on the screen; None for one that has no turns yet."""
        return self._session.chats.conversation

    @property
    def deleted(self) -> Conversation | None:
        """The conversation that `bring_back` would bring back."""
        return self._deleted[-1][0] if self._deleted else None

    def close(self) -> None:
        """Nothing is heard of what threads still read."""
        self._closed = True

    # -- reading -------------------------------------------------------------------------------------------------

    def find(self, words: str = "", skip: int = 0) -> None:
        """Lists those that hold these words; one search runs at a time, and `listed` tells of the newest only."""
        if self._finding:
            self._next = words, skip
            return
        self._finding = True
        self._beside(partial(_listed, words=words, skip=skip), self._take_listing)

    def _take_listing(self, found: Listing) -> None:
        if self._next is None:
            self.listed.emit(found)

    def _end_finding(self) -> None:
        self._finding = False
        wanted, self._next = self._next, None
        if wanted is not None:
            self.find(*wanted)

    def open(self, number: int) -> None:
        """Shows a conversation as it was left."""
        if self._answering("opening another chat"):
            return
        self._show(partial(_opened, number=number))

    def choose(self, turn: int) -> None:
        """Shows an alternative of a turn on the screen, with what followed it last."""
        conversation = self.current
        if conversation is not None and not self._answering("showing another answer"):
            self._show(partial(_chosen, number=conversation.id, turn=turn))

    def _show(self, read: Callable[[ChatStore], tuple[Conversation, tuple[Turn, ...]]]) -> None:
        self._opening = asked = object()
        before = self._current_number

        def then(found: tuple[Conversation, tuple[Turn, ...]]) -> None:
            if asked is self._opening and before == self._current_number and self._session.answering is None:
                self._session.show_conversation(*found)

        self._beside(read, then)

    # -- writing -------------------------------------------------------------------------------------------------

    def rename(self, number: int, title: str) -> None:
        """Without words the old title stays."""
        title = " ".join(title.split())
        if not title:
            return
        chats = self._session.chats
        if self._written(partial(chats.store.rename, number, title)):
            chats.take_title(number, title)
            self._session.tell(ConversationChanged())

    def delete(self, conversation: Conversation) -> None:
        """Until the program ends it can be brought back."""
        shown = self.current is not None and self.current.id == conversation.id
        if shown and self._answering("deleting this chat"):
            return
        if not self._written(partial(self._session.chats.store.delete, conversation.id)):
            return
        self._deleted.append((conversation, shown))
        if shown:
            self._session.show_conversation(None, ())
        else:
            self._session.tell(ConversationChanged())

    def bring_back(self) -> None:
        """The one deleted last; it is shown again if it was, and nothing else is by now."""
        if not self._deleted:
            return
        conversation, shown = self._deleted[-1]
        if not self._written(partial(self._session.chats.store.bring_back, conversation.id)):
            return
        self._deleted.pop()
        self._session.tell(ConversationChanged())
        if shown and self.current is None and self._session.answering is None:
            self.open(conversation.id)

    # -- taking away -----------------------------------------------------------------------------------------------

    def copy(self, number: int) -> None:
        """Puts a conversation on the clipboard, as Markdown."""
        self._beside(partial(_markdown, number=number), self._to_clipboard)

    def save(self, number: int, path: Path) -> None:
        """Writes a conversation: as JSON where the file is called so, else as Markdown."""
        self._beside(partial(_saved, number=number, path=path), self._tell_saved)

    def _to_clipboard(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self._session.notify("The chat is on the clipboard, as Markdown.")

    def _tell_saved(self, path: Path) -> None:
        self._session.notify(f"The chat is in {path}.")

    # -- within --------------------------------------------------------------------------------------------------

    @property
    def _current_number(self) -> int | None:
        return self.current.id if self.current is not None else None

    def _answering(self, what: str) -> bool:
        """Whether an answer is being written here; says so."""
        if self._session.answering is None:
            return False
        self._session.notify(f"The engine is answering: stop it, or wait, before {what}.")
        return True

    def _written(self, write: Callable[[], None]) -> bool:
        """Whether a short write worked; says why when it didn’t."""
        try:
            write()
        except StoreFailed as failure:
            self._session.notify(f"{failure.message} {failure.hint}".strip())
            return False
        return True

    def _beside(self, read: Callable[[ChatStore], object], then: Callable[..., None]) -> None:
        """Reads on a thread, then goes on with what was read; chats in memory have no other store and no long reads."""
        store = self._session.chats.store
        if store.in_memory:
            self._take(then, _tried(read, store))
            return

        def run() -> None:
            try:
                with store.beside() as own:
                    found = _tried(read, own)
            except StoreFailed as failure:
                found = failure
            try:
                self._done.emit(then, found)
            except RuntimeError:
                return  # the window is gone

        threading.Thread(target=run, name="conversations", daemon=True).start()

    @Slot(object, object)
    def _take(self, then: Callable[..., None], found: object) -> None:
        if self._closed:
            return
        if isinstance(found, LayerlightError):
            self._session.notify(f"{found.message} {found.hint}".strip())
        else:
            then(found)
        if then == self._take_listing:
            self._end_finding()


def _tried(read: Callable[[ChatStore], object], store: ChatStore) -> object:
    try:
        return read(store)
    except StoreFailed as failure:
        return failure


def _listed(store: ChatStore, words: str, skip: int) -> Listing:
    return Listing(words, skip, store.conversations(words, PAGE, skip))


def _conversation(store: ChatStore, number: int) -> Conversation:
    found = store.conversation(number)
    if found is None:
        raise StoreFailed("That conversation is gone.", hint="Another window may have deleted it.")
    return found


def _opened(store: ChatStore, number: int) -> tuple[Conversation, tuple[Turn, ...]]:
    return _conversation(store, number), store.turns(number, requests=False)


def _chosen(store: ChatStore, number: int, turn: int) -> tuple[Conversation, tuple[Turn, ...]]:
    store.choose(turn)
    return _opened(store, number)


def _markdown(store: ChatStore, number: int) -> str:
    return as_markdown(*_opened(store, number))


def _saved(store: ChatStore, number: int, path: Path) -> Path:
    conversation, shown = _opened(store, number)
    as_it_is = path.suffix.lower() == ".json"
    text = as_json(conversation, shown, store.all_turns(number)) if as_it_is else as_markdown(conversation, shown)
    write_chat(path, text)
    return path
