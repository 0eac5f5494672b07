"""Asking: questions to the loaded model, other answers to them, and the conversation that they stand in."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from layerlight.core.advice import verdict_of
from layerlight.core.errors import StoreFailed
from layerlight.core.messages import EngineStopped, Event, Failed, PromptCounted, RunFinished, TextProduced, TextRequest
from layerlight.store.chats import Conversation
from layerlight.store.turns import Turn
from layerlight.ui.chats import Chats
from layerlight.ui.happenings import ConversationChanged
from layerlight.ui.state_keeper import StateKeeper


class Asking(StateKeeper):
    """The conversation on the screen goes on here: each turn is in the store before a view sees it."""

    _chats: Chats

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._chats.turns

    @property
    def answering(self) -> Turn | None:
        return self._chats.answering

    @property
    def chats(self) -> Chats:
        return self._chats

    @property
    def can_answer_again(self) -> bool:
        """Whether there is a question to which another answer can be given now."""
        return self.state.loaded is not None and not self.busy and self._chats.last_question is not None

    # -- questions -----------------------------------------------------------------------------------------------

    def ask(self, text: str) -> bool:
        """Puts a question; False when it was not taken, and the words should stay where they are."""
        return bool(text.strip()) and self._answer("the next question", partial(self._chats.ask, text))

    def ask_instead(self, text: str) -> bool:
        """Puts the last question in other words; the one before stays as its alternative. False as for `ask`."""
        return bool(text.strip()) and self._answer("the next question", partial(self._chats.ask_instead, text))

    def answer_again(self) -> bool:
        """Answers the last question anew; the answer before stays as its alternative. False when it was not taken."""
        if self._chats.last_question is None:
            return False
        taken = self._answer("another answer", self._chats.take_back_answer)
        if taken and self.settings.temperature == 0:
            self.notify("The temperature is 0, so the likeliest answer comes again. Raise it under Sampling.")
        elif taken and self.settings.seed is not None:
            self.notify(f"The seed is fixed at {self.settings.seed}, so the same answer comes again: see Sampling.")
        return taken

    def _answer(self, what: str, begin: Callable[[], None]) -> bool:
        """Asks for an answer to the turns as they are after `begin`."""
        if self._refused(what):
            return False
        if self.state.loaded is None:
            self.notify("Load a model first; then it can answer.")
            return False
        plan = self.state.loaded_plan
        try:
            begin()
            self._tell(ConversationChanged())
            request = self._request()
            self._chats.begin_answer(request, self.state.loaded, verdict_of(plan).words if plan else "")
        except StoreFailed as failure:
            self._fail(failure)
            return False
        self._tell(ConversationChanged())
        self._send(request)
        return True

    def _request(self) -> TextRequest:
        chosen = self.settings
        return TextRequest(
            self._chats.messages(chosen.system),
            chosen.seed if chosen.seed is not None else random.randrange(2**31),
            chosen.max_new_tokens,
            chosen.temperature,
            chosen.top_p,
            chosen.top_k,
            chosen.repetition_penalty,
            chosen.prompt_lookup,
        )

    # -- conversations -------------------------------------------------------------------------------------------

    def new_conversation(self) -> None:
        if not self._refused("a new chat"):
            self.show_conversation(None, ())

    def show_conversation(self, conversation: Conversation | None, turns: tuple[Turn, ...]) -> None:
        """Shows this conversation as it was read; None is a new one."""
        self._chats.show(conversation, turns)
        self._tell(ConversationChanged())

    def reopen(self, chats: Chats) -> None:
        """Shows these chats' conversation, and keeps new ones there; another thread may have read them."""
        chats.take_over()
        self._chats = chats
        if chats.trouble is not None:
            self._fail(chats.trouble)
        if self._chats.notice:
            self.notify(self._chats.notice)
        self._tell(ConversationChanged())

    def _keep(self, event: Event) -> None:
        """Into the store, before any view sees it."""
        match event:
            case TextProduced():
                self._chats.grow(self.state.answer)
            case RunFinished(result=result):
                self._chats.end_answer(result.text, result)
            case Failed() | EngineStopped():
                self._chats.end_answer(self.state.answer, None)
            case PromptCounted():
                self._chats.prompt_counted()
            case _:
                pass
