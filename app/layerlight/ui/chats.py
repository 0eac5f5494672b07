"""The conversation on the screen: every turn is in the store before it is shown."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from layerlight.core.errors import StoreFailed
from layerlight.core.messages import ChatMessage, RunResult, TextRequest
from layerlight.store.chats import ChatStore, Conversation, Turn, open_chats

SAVE_EVERY = 1.0
"""Seconds between two saves of an answer while it grows."""


class Chats:
    """Holds the turns shown. Every method raises StoreFailed when the store could not take them."""

    def __init__(self, store: ChatStore) -> None:
        self._store = store
        self.turns: tuple[Turn, ...] = ()
        self.conversation: Conversation | None = None
        self._answering: Turn | None = None
        self._saved = 0.0
        self._began = False
        self.trouble: StoreFailed | None = None
        """Why the last conversation could not be read."""

    @property
    def notice(self) -> str:
        return self._store.notice

    @property
    def answering(self) -> Turn | None:
        """The answer that is being written, its text so far not included."""
        return self._answering

    def reopen(self) -> None:
        """The last conversation, as it was left."""
        self.conversation = self._store.last_conversation()
        self.turns = self._store.turns(self.conversation.id) if self.conversation else ()

    def take_over(self) -> None:
        """They are the calling thread's from now on."""
        self._store.take_over()

    def begin_anew(self) -> None:
        """An empty conversation; it is stored with its first turn."""
        self.conversation, self.turns, self._answering, self._began = None, (), None, False

    def ask(self, text: str) -> None:
        """Adds a question."""
        conversation = self.conversation or self._store.new_conversation()
        turn = self._store.append_turn(conversation.id, "user", text)
        self.conversation = conversation
        self.turns = (*self.turns, turn)

    def messages(self, system: str) -> tuple[ChatMessage, ...]:
        """All turns as a model takes them; empty answers, as of a run that failed, are left out."""
        head = (ChatMessage("system", system),) if system.strip() else ()
        return head + tuple(ChatMessage(turn.role, turn.content) for turn in self.turns if turn.content)

    def begin_answer(self, request: TextRequest, folder: str, plan: str) -> None:
        if self.conversation is None:
            return
        turn = self._store.append_turn(self.conversation.id, "assistant", "", request=request, folder=folder, plan=plan)
        self._answering, self._saved = turn, time.monotonic()
        self.turns = (*self.turns, turn)

    def prompt_counted(self) -> None:
        """From here on the text that the engine tells belongs to this answer."""
        self._began = True

    def grow(self, text: str) -> None:
        """Saves the text so far, now and then."""
        if self._answering is not None and time.monotonic() - self._saved > SAVE_EVERY:
            self._saved = time.monotonic()
            self._store.update_turn(self._answering.id, text)

    def end_answer(self, text: str, result: RunResult | None) -> None:
        """Saves what there is; without any text nothing of the answer stays."""
        turn, self._answering = self._answering, None
        if result is None and not self._began:
            text = ""
        self._began = False
        if turn is None:
            return
        if not text and result is None:
            self.turns = tuple(each for each in self.turns if each.id != turn.id)
            self._store.delete_turn(turn.id)
            return
        ended = replace(turn, content=text, result=result)
        self.turns = tuple(ended if each.id == turn.id else each for each in self.turns)
        self._store.update_turn(turn.id, text, result)

    def close(self) -> None:
        self._store.close()


def reopened(path: Path) -> Chats:
    """The chats kept at `path` with the last conversation read, which takes as long as it is; on any thread.

    Whoever uses them takes them over. Never fails: `trouble` tells what could not be read.
    """
    chats = Chats(open_chats(path))
    try:
        chats.reopen()
    except StoreFailed as failure:
        chats.trouble = failure
    return chats
