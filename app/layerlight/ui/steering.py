"""Steering: what menus and keys do to the working view, which comes to the front where it is to be seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from layerlight.ui.map_heat import MODES
from layerlight.ui.past_chats import save_chat
from layerlight.ui.session import Session

if TYPE_CHECKING:
    from layerlight.ui.desk import Desk

WIDER = 40
"""px by which keys make the right panel wider."""


class Steering:
    """The working view is made by the first command that needs it."""

    def __init__(self, session: Session, desk: Desk) -> None:
        self._session, self._desk = session, desk

    def commands(self) -> dict[str, Callable[[], object]]:
        """By their keys in the menus."""
        return {
            "past_chats": self.show_past,
            "edit_question": self.edit_question,
            "copy_answer": lambda: self._desk.work.chat.talk.copy_answer(),
            "copy_chat": self.copy_chat,
            "save_chat": self.save_chat,
            "show_map": partial(self.show_view, "map"),
            "show_table": partial(self.show_view, "table"),
            **{f"heat_{mode}": partial(self.show_heat, mode) for mode, _ in MODES},
            "show_plan": partial(self.show_side, "plan"),
            "show_chat": self.show_chat,
            "log": self.show_log,
            "wider_side": lambda: self._desk.work.panes.widen_right(WIDER),
            "narrower_side": lambda: self._desk.work.panes.widen_right(-WIDER),
            "left_panel": lambda: self._desk.work.panes.toggle_left(),
            "copy_facts": lambda: self._desk.work.facts.copy(),
            "show_folder": lambda: self._desk.work.facts.show_folder(),
        }

    def show_heat(self, mode: str) -> None:
        self._desk.front().show_heat(mode)

    def show_view(self, view: str) -> None:
        """`map` or `table`."""
        work = self._desk.front()
        work.show_view(view)
        work.focus_layers()

    def show_side(self, side: str) -> None:
        """`plan`, `chat` or `log`."""
        work = self._desk.front()
        work.show_side(side)
        if side == "chat":
            work.chat.show_talk()
            work.chat.entry.setFocus()

    def show_chat(self) -> None:
        self.show_side("chat")

    def show_log(self) -> None:
        self.show_side("log")

    def show_past(self) -> None:
        """The same keys lead back."""
        desk = self._desk
        shown = desk.working and desk.work.side == "chat" and desk.work.chat.shows_past
        self.show_side("chat")
        if not shown:
            desk.work.chat.show_past()

    def edit_question(self) -> None:
        self.show_side("chat")
        self._desk.work.chat.edit_question()

    def copy_chat(self) -> None:
        current = self._session.conversations.current
        if current is not None:
            self._session.conversations.copy(current.id)

    def save_chat(self) -> None:
        current = self._session.conversations.current
        if current is not None:
            save_chat(self._desk, self._session, current)
