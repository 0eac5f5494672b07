"""ChatStore: conversations and their turns, in SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerlight.core.characters import mended
from layerlight.core.messages import RunResult, TextRequest
from layerlight.store.database import Kept
from layerlight.store.kept_file import KeptFile, dumped, loaded, open_or_in_memory

SCHEMA_VERSION = 1
TITLE_LENGTH = 60
_SCHEMA = """
CREATE TABLE conversations (id INTEGER PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL);
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    request TEXT,
    folder TEXT NOT NULL,
    plan TEXT NOT NULL,
    result TEXT,
    created REAL NOT NULL
);
CREATE INDEX turns_by_conversation ON turns (conversation, id);
"""
_KEPT = Kept(
    "chats",
    _SCHEMA,
    SCHEMA_VERSION,
    gone=("That conversation is gone.", "Another window may have deleted it: begin a new chat."),
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat. Times are seconds since 1970."""

    id: int
    title: str
    created: float
    changed: float


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

    @property
    def seed(self) -> int | None:
        """The seed that was really used."""
        if self.result is not None:
            return self.result.seed
        return self.request.seed if self.request is not None else None


class ChatStore(KeptFile):
    """Chats in one SQLite file.

    Every method has committed before it returns and raises StoreFailed when it could not. A crash of the program
    loses nothing that was committed; a power cut may lose the last moments, never the file.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Raises StoreFailed as every KeptFile does."""
        super().__init__(path, _KEPT)
        self._clock = clock

    # -- conversations -------------------------------------------------------------------------------------------

    def new_conversation(self, title: str = "") -> Conversation:
        """An empty conversation; without a title it takes one from its first question."""
        now = self._clock()
        with self._writing() as database:
            added = database.execute(
                "INSERT INTO conversations (title, created, changed) VALUES (?, ?, ?)", (mended(title), now, now)
            )
        return Conversation(int(added.lastrowid or 0), mended(title), now, now)

    def conversations(self) -> tuple[Conversation, ...]:
        """All conversations, the one changed last first."""
        rows = self._read("SELECT id, title, created, changed FROM conversations ORDER BY changed DESC, id DESC")
        return tuple(Conversation(*row) for row in rows)

    def last_conversation(self) -> Conversation | None:
        """The conversation to reopen at the start; None when there is none yet."""
        rows = self._read(
            "SELECT id, title, created, changed FROM conversations ORDER BY changed DESC, id DESC LIMIT 1"
        )
        return Conversation(*rows[0]) if rows else None

    def rename(self, conversation: int, title: str) -> None:
        with self._writing() as database:
            database.execute("UPDATE conversations SET title = ? WHERE id = ?", (mended(title), conversation))

    def delete(self, conversation: int) -> None:
        """Deletes a conversation with all its turns."""
        with self._writing() as database:
            database.execute("DELETE FROM conversations WHERE id = ?", (conversation,))

    # -- turns ---------------------------------------------------------------------------------------------------

    def turns(self, conversation: int) -> tuple[Turn, ...]:
        """The turns of a conversation, oldest first."""
        rows = self._read(
            "SELECT id, conversation, role, content, created, request, folder, plan, result FROM turns"
            " WHERE conversation = ? ORDER BY id",
            (conversation,),
        )
        return tuple(_turn(row) for row in rows)

    def append_turn(
        self,
        conversation: int,
        role: str,
        content: str,
        *,
        request: TextRequest | None = None,
        folder: str = "",
        plan: str = "",
        result: RunResult | None = None,
    ) -> Turn:
        """Adds a turn. For an answer that is still to come, add it empty and update it while it grows.

        Raises StoreFailed also when the conversation is gone, which another window may have deleted.
        """
        now = self._clock()
        words = mended(content)
        with self._writing() as database:
            added = database.execute(
                "INSERT INTO turns (conversation, role, content, request, folder, plan, result, created)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (conversation, role, words, _dump(request), mended(folder), mended(plan), _dump(result), now),
            )
            database.execute("UPDATE conversations SET changed = ? WHERE id = ?", (now, conversation))
            if role == "user":
                database.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''", (_title(words), conversation)
                )
        number = int(added.lastrowid or 0)
        return Turn(number, conversation, role, words, now, request, mended(folder), mended(plan), result)

    def update_turn(self, turn: int, content: str, result: RunResult | None = None) -> None:
        """Writes what an answer holds by now, and its result once it has ended."""
        with self._writing() as database:
            database.execute(
                "UPDATE turns SET content = ?, result = coalesce(?, result) WHERE id = ?",
                (mended(content), _dump(result), turn),
            )

    def delete_turn(self, turn: int) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM turns WHERE id = ?", (turn,))


def open_chats(path: Path) -> ChatStore:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    return open_or_in_memory(ChatStore, path, _KEPT)


def _title(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _dump(value: TextRequest | RunResult | None) -> str | None:
    return None if value is None else dumped(value)


def _turn(row: tuple[Any, ...]) -> Turn:
    number, conversation, role, content, created, request, folder, plan, result = row
    return Turn(
        number,
        conversation,
        role,
        content,
        created,
        None if request is None else loaded(request, TextRequest),
        folder,
        plan,
        None if result is None else loaded(result, RunResult),
    )
