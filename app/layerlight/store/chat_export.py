"""A conversation as Markdown or JSON, for a file, a mail or another program."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import msgspec

from layerlight.core.errors import StoreFailed
from layerlight.store.chats import Conversation
from layerlight.store.turns import Turn

FORMAT = 1
"""Version of the JSON's shape."""
WHO = {"user": "You", "system": "System"}


def as_markdown(conversation: Conversation, turns: tuple[Turn, ...]) -> str:
    """The turns that are shown, each under its speaker: a model is called by its folder's name."""
    parts = [f"# {conversation.title or 'Chat'}"]
    for turn in turns:
        parts += [f"## {_speaker(turn)}", turn.content.strip()]
    return "\n\n".join(parts) + "\n"


def as_json(conversation: Conversation, shown: tuple[Turn, ...], turns: tuple[Turn, ...]) -> str:
    """All turns with what each answer came from; `shown` are those of the branch that is shown."""
    numbers = {turn.id for turn in shown}
    data = {
        "format": FORMAT,
        "title": conversation.title,
        "created": _moment(conversation.created),
        "changed": _moment(conversation.changed),
        "turns": [
            {
                "id": turn.id,
                "after": turn.parent,
                "shown": turn.id in numbers,
                "role": turn.role,
                "content": turn.content,
                "created": _moment(turn.created),
                "model": turn.folder,
                "plan": turn.plan,
                "request": _asked(turn),
                "result": msgspec.to_builtins(turn.result),
            }
            for turn in turns
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def write_chat(path: Path, text: str) -> None:
    """Raises StoreFailed when it can't be written."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreFailed(
            f"The chat could not be written to {path}: {error.strerror or error}.",
            hint="Choose another folder, or check that the disk has room.",
        ) from error


def _speaker(turn: Turn) -> str:
    return WHO.get(turn.role) or PurePath(turn.folder).name or "Answer"


def _asked(turn: Turn) -> Any:
    """The request with its system message only: its other messages are the turns before it."""
    if turn.request is None:
        return None
    system = tuple(each for each in turn.request.messages if each.role == "system")
    return msgspec.to_builtins(replace(turn.request, messages=system))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
