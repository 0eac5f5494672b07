"""The conversation on the screen: every turn is in the store before it is shown."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from layerlight.core.errors import StoreFailed
from layerlight.core.messages import ChatMessage, RunResult, TextRequest
from layerlight.store.chats import ChatStore, Conversation, open_chats
from layerlight.store.turns import Turn, answered

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
        self._before: tuple[Turn, ...] = ()
        """What was shown until a question is answered again: it comes back when there is no other answer."""
        self.trouble: StoreFailed | None = None
        """Why the last conversation could not be read."""

    @property
    def notice(self) -> str:
        return self._store.notice

    @property
    def answering(self) -> Turn | None:
        """The answer that is being written, its text so far not included."""
        return self._answering

    @property
    def store(self) -> ChatStore:
        return self._store

    def reopen(self) -> None:
        """The last conversation, as it was left."""
        conversation = self._store.last_conversation()
        self.show(conversation, self._store.turns(conversation.id, requests=False) if conversation else ())

    def show(self, conversation: Conversation | None, turns: tuple[Turn, ...]) -> None:
        """This conversation, as it was read."""
        self.conversation, self.turns, self._answering, self._began, self._before = conversation, turns, None, False, ()

    def take_over(self) -> None:
        """They are the calling thread's from now on."""
        self._store.take_over()

    def take_title(self, number: int, title: str) -> None:
        """A conversation is called so now."""
        if self.conversation is not None and self.conversation.id == number:
            self.conversation = replace(self.conversation, title=title)

    def ask(self, text: str) -> None:
        """Adds a question."""
        conversation = self.conversation or self._store.new_conversation()
        turn = self._store.append_turn(conversation.id, "user", text, after=self.turns[-1].id if self.turns else None)
        if not conversation.title:
            conversation = self._store.conversation(conversation.id) or conversation
        self.conversation = conversation
        self.turns = (*self.turns, turn)

    @property
    def last_question(self) -> Turn | None:
        """The question that can be answered again, or asked in other words."""
        return next((turn for turn in reversed(self.turns) if turn.role == "user"), None)

    def ask_instead(self, text: str) -> None:
        """Asks in place of the last question: both stay stored, as alternatives."""
        before = self.turns
        self._rewind(self.last_question)
        try:
            self.ask(text)
        except StoreFailed:
            self.turns = before
            raise

    def take_back_answer(self) -> None:
        """Shows the last question without its answer: the next answer stands beside it, as an alternative."""
        self._before = self.turns
        question = self.last_question
        self._rewind(question)
        if question is not None:
            self.turns = (*self.turns, question)

    def _rewind(self, to: Turn | None) -> None:
        """Shows only what was before a turn."""
        self.turns = self.turns[: self.turns.index(to)] if to is not None else self.turns

    def messages(self, system: str) -> tuple[ChatMessage, ...]:
        """All turns as a model takes them.

        Empty answers, as of a run that failed, are left out, and so are earlier questions that nothing answered: one
        that is too long would else be refused again with every later one.
        """
        head = (ChatMessage("system", system),) if system.strip() else ()
        return head + answered(ChatMessage(turn.role, turn.content) for turn in self.turns if turn.content)

    def begin_answer(self, request: TextRequest, folder: str, plan: str) -> None:
        if self.conversation is None:
            return
        try:
            turn = self._store.append_turn(
                self.conversation.id, "assistant", "", request=request, of_turns=len(self.messages("")),
                folder=folder, plan=plan, after=self.turns[-1].id if self.turns else None,
            )  # fmt: skip
        except StoreFailed:
            self.turns, self._before = self._before or self.turns, ()
            raise
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
        before, self._before = self._before, ()
        if turn is None:
            return
        if not text and result is None:
            self.turns = tuple(each for each in self.turns if each.id != turn.id)
            self._store.delete_turn(turn.id)
            if before:
                self._store.choose(before[-1].id)
                self.turns = before
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
