"""Turn: one message of a conversation, and how it lies in the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from layerlight.core.messages import ChatMessage, RunResult, TextRequest
from layerlight.store.kept_file import dumped, loaded

COLUMNS = "id, conversation, role, content, created, {}, folder, plan, result, parent"
"""What is read of a turn; the gap is for its request, or for NULL in its place."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, with all that is needed to repeat an answer."""

    id: int
    conversation: int
    role: str
    """`system`, `user` or `assistant`."""
    content: str
    created: float
    request: TextRequest | None = None
    """The complete request that an answer came from."""
    folder: str = ""
    """The model that answered."""
    plan: str = ""
    """How it was placed, in words."""
    result: RunResult | None = None
    """None while an answer is being written, and for ever when the program ended in its middle."""
    parent: int | None = None
    """The turn before it."""
    alternatives: tuple[int, ...] = ()
    """All turns that follow the same parent, itself among them, oldest first."""

    @property
    def seed(self) -> int | None:
        """The seed that was really used."""
        if self.result is not None:
            return self.result.seed
        return self.request.seed if self.request is not None else None


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request without its last messages, where those are the turns before it: a long chat would else be stored anew
    with each of its answers."""

    request: TextRequest
    turns: int
    """How many messages were left out."""


def answered(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Without the questions that another one follows: nothing answered them, as where they were refused."""
    kept: list[ChatMessage] = []
    for message in messages:
        if kept and kept[-1].role == message.role == "user":
            kept.pop()
        kept.append(message)
    return tuple(kept)


def turns_of(rows: Iterable[tuple[Any, ...]], siblings: dict[int | None, tuple[int, ...]]) -> tuple[Turn, ...]:
    """The turns of rows of `COLUMNS`, parents before their children; `siblings` are those that follow each turn."""
    said: dict[int | None, tuple[ChatMessage, ...]] = {None: ()}
    found = []
    for number, conversation, role, content, created, request, folder, plan, result, parent in rows:
        before = said.get(parent, ())
        said[number] = answered((*before, ChatMessage(role, content))) if content else before
        found.append(
            Turn(
                number, conversation, role, content, created, _request(request, before), folder, plan,
                None if result is None else loaded(result, RunResult), parent, siblings.get(parent, ()),
            )
        )  # fmt: skip
    return tuple(found)


def dump_request(request: TextRequest | None, of_turns: int = 0) -> str | None:
    """As JSON, without its last `of_turns` messages."""
    if request is None or not of_turns:
        return None if request is None else dumped(request)
    return dumped(KeptRequest(replace(request, messages=request.messages[:-of_turns]), of_turns))


def dump_result(result: RunResult | None) -> str | None:
    return None if result is None else dumped(result)


def _request(text: str | None, before: tuple[ChatMessage, ...]) -> TextRequest | None:
    """The whole request; None when there is none, or when it can't be put together any more."""
    if text is None:
        return None
    kept = loaded(text, KeptRequest)
    if kept is None:
        return loaded(text, TextRequest)
    if len(before) < kept.turns:
        return None
    return replace(kept.request, messages=(*kept.request.messages, *before[len(before) - kept.turns :]))
