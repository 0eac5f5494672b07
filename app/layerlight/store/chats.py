"""ChatStore: conversations and their turns, in SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from layerlight.core.characters import mended
from layerlight.core.errors import StoreFailed
from layerlight.core.messages import RunResult, TextRequest
from layerlight.store.database import Kept
from layerlight.store.kept_file import KeptFile, open_or_in_memory
from layerlight.store.turns import COLUMNS, Turn, dump_request, dump_result, turns_of

SCHEMA_VERSION = 2
TITLE_LENGTH = 60
EXCERPT_LENGTH, BEFORE = 160, 20
"""Characters of an excerpt, and of what stands in it before the word that was sought."""
LAST = -1
"""In place of a turn's number: the one that its conversation shows last."""
LEFT_OVER = 24 * 3600.0
"""Seconds after which a deleted conversation that a crash left over is removed for good."""
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
_ALTERNATIVES = """
ALTER TABLE conversations ADD COLUMN leaf INTEGER;
ALTER TABLE conversations ADD COLUMN deleted REAL;
ALTER TABLE turns ADD COLUMN parent INTEGER;
UPDATE turns SET parent =
    (SELECT max(id) FROM turns AS before WHERE before.conversation = turns.conversation AND before.id < turns.id);
UPDATE conversations SET leaf = (SELECT max(id) FROM turns WHERE conversation = conversations.id);
CREATE INDEX turns_by_parent ON turns (conversation, parent);
"""
"""Version 2: turns are a tree, of which a conversation shows the branch that ends in its leaf."""
_KEPT = Kept(
    "chats",
    _SCHEMA,
    SCHEMA_VERSION,
    upgrades=(_ALTERNATIVES,),
    gone=("That conversation is gone.", "Another window may have deleted it: begin a new chat."),
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat. Times are seconds since 1970."""

    id: int
    title: str
    created: float
    changed: float
    questions: int = 0
    """How many were asked, alternatives among them; only lists of conversations count them."""
    excerpt: str = ""
    """Of a search: what stands around the first word that was sought, where a turn holds it."""


class ChatStore(KeptFile):
    """Chats in one SQLite file.

    Every method has committed before it returns and raises StoreFailed when it could not. A crash of the program
    loses nothing that was committed; a power cut may lose the last moments, never the file.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time, check: bool = True) -> None:
        """Raises StoreFailed as every KeptFile does. Without `check` for a file that this program has open already."""
        super().__init__(path, _KEPT, check)
        self._database.create_function("fold", 1, _fold, deterministic=True)
        self._clock = clock
        self._deleted: list[int] = []
        if check:
            self._remove_left_over()

    def beside(self) -> Self:
        """A second store on the same file, for another thread. There is none beside one in memory: that is given."""
        return self if self.path is None else type(self)(self.path, self._clock, check=False)

    @property
    def in_memory(self) -> bool:
        return self.path is None

    # -- conversations -------------------------------------------------------------------------------------------

    def new_conversation(self, title: str = "") -> Conversation:
        """An empty conversation; without a title it takes one from its first question."""
        now = self._clock()
        with self._writing() as database:
            added = database.execute(
                "INSERT INTO conversations (title, created, changed) VALUES (?, ?, ?)", (mended(title), now, now)
            )
        return Conversation(int(added.lastrowid or 0), mended(title), now, now)

    def conversations(self, words: str = "", most: int = -1, skip: int = 0) -> tuple[Conversation, ...]:
        """Conversations, the one changed last first: at most `most` (-1: all), after the first `skip`.

        With `words` only those that hold each of them, in title or turns, whatever its case.
        """
        folded = words.casefold().split()
        rows = self._read(
            f"SELECT {_COLUMNS}, {_QUESTIONS}, {_FOUND if folded else 'NULL'}"
            f" FROM conversations WHERE deleted IS NULL {_HOLDS * len(folded)}"
            " ORDER BY changed DESC, id DESC LIMIT ? OFFSET ?",
            (*folded[:1], *(each for word in folded for each in (word, word)), most, skip),
        )
        return tuple(
            Conversation(number, title, created, changed, questions, _excerpt(found, folded[0]) if found else "")
            for number, title, created, changed, questions, found in rows
        )

    def conversation(self, number: int) -> Conversation | None:
        """The conversation of this number; None when it is gone or deleted."""
        rows = self._read(f"SELECT {_COLUMNS} FROM conversations WHERE id = ? AND deleted IS NULL", (number,))
        return Conversation(*rows[0]) if rows else None

    def last_conversation(self) -> Conversation | None:
        """The conversation to reopen at the start; None when there is none yet."""
        rows = self._read(
            f"SELECT {_COLUMNS} FROM conversations WHERE deleted IS NULL ORDER BY changed DESC, id DESC LIMIT 1"
        )
        return Conversation(*rows[0]) if rows else None

    def rename(self, conversation: int, title: str) -> None:
        with self._writing() as database:
            database.execute("UPDATE conversations SET title = ? WHERE id = ?", (mended(title), conversation))

    def delete(self, conversation: int) -> None:
        """Deletes a conversation with all its turns. Until the store is closed it can be brought back."""
        with self._writing() as database:
            database.execute("UPDATE conversations SET deleted = ? WHERE id = ?", (self._clock(), conversation))
        self._deleted.append(conversation)

    def bring_back(self, conversation: int) -> None:
        """Undoes `delete`."""
        with self._writing() as database:
            database.execute("UPDATE conversations SET deleted = NULL WHERE id = ?", (conversation,))

    def close(self) -> None:
        """Removes for good what was deleted; where that fails, a later start does it."""
        with suppress(StoreFailed, sqlite3.ProgrammingError):  # closed already, or left on another thread
            self._remove(f"id IN ({', '.join('?' * len(self._deleted))})", *self._deleted)
        super().close()

    def _remove_left_over(self) -> None:
        self._remove("deleted < ?", self._clock() - LEFT_OVER)

    def _remove(self, which: str, *values: float) -> None:
        where = f"FROM conversations WHERE deleted IS NOT NULL AND {which}"
        if self._read(f"SELECT 1 {where} LIMIT 1", values):
            with self._writing() as database:
                database.execute(f"DELETE {where}", values)

    # -- turns ---------------------------------------------------------------------------------------------------

    def turns(self, conversation: int, requests: bool = True) -> tuple[Turn, ...]:
        """The turns that a conversation shows, oldest first. Without `requests`, which are long, it is far quicker."""
        rows = self._read(
            "WITH RECURSIVE shown(id) AS (SELECT leaf FROM conversations WHERE id = ? AND deleted IS NULL"
            " UNION SELECT parent FROM turns JOIN shown USING (id))"
            f" SELECT {COLUMNS.format('request' if requests else 'NULL')} FROM turns JOIN shown USING (id)"
            " ORDER BY id",
            (conversation,),
        )
        return turns_of(rows, self._siblings(conversation))

    def all_turns(self, conversation: int) -> tuple[Turn, ...]:
        """All turns, with alternatives that are not shown, oldest first."""
        rows = self._read(
            f"SELECT {COLUMNS.format('request')} FROM turns WHERE conversation = ? ORDER BY id", (conversation,)
        )
        return turns_of(rows, self._siblings(conversation))

    def choose(self, turn: int) -> None:
        """Lets its conversation show this turn, and what followed it last."""
        with self._writing() as database:
            leaf: int | None = turn
            while leaf is not None:
                turn = leaf
                leaf = database.execute(
                    "SELECT max(id) FROM turns WHERE parent = ?"
                    " AND conversation = (SELECT conversation FROM turns WHERE id = ?)",
                    (turn, turn),
                ).fetchone()[0]
            database.execute(
                "UPDATE conversations SET leaf = ? WHERE id = (SELECT conversation FROM turns WHERE id = ?)",
                (turn, turn),
            )

    def append_turn(
        self,
        conversation: int,
        role: str,
        content: str,
        *,
        request: TextRequest | None = None,
        of_turns: int = 0,
        folder: str = "",
        plan: str = "",
        result: RunResult | None = None,
        after: int | None = LAST,
    ) -> Turn:
        """Adds a turn after another one (None: as a first one), beside those that follow it already, and shows it.

        For an answer that is still to come, add it empty and update it while it grows. So many last messages of its
        request are `of_turns` before it: they are not stored again.

        Raises StoreFailed also when the conversation is gone, which another window may have deleted.
        """
        now = self._clock()
        words = mended(content)
        with self._writing() as database:
            leaf = _leaf(database, conversation)
            parent = leaf if after == LAST else after
            added = database.execute(
                "INSERT INTO turns (conversation, role, content, request, folder, plan, result, created, parent)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    conversation,
                    role,
                    words,
                    dump_request(request, of_turns),
                    mended(folder),
                    mended(plan),
                    dump_result(result),
                    now,
                    parent,
                ),
            )
            number = int(added.lastrowid or 0)
            database.execute("UPDATE conversations SET changed = ?, leaf = ? WHERE id = ?", (now, number, conversation))
            if role == "user":
                database.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''", (_title(words), conversation)
                )
            beside = database.execute(
                "SELECT id FROM turns WHERE conversation = ? AND parent IS ? ORDER BY id", (conversation, parent)
            ).fetchall()
        alternatives = tuple(int(each) for (each,) in beside)
        return Turn(
            number, conversation, role, words, now, request, mended(folder), mended(plan), result, parent, alternatives
        )

    def update_turn(self, turn: int, content: str, result: RunResult | None = None) -> None:
        """Writes what an answer holds by now, and its result once it has ended."""
        with self._writing() as database:
            database.execute(
                "UPDATE turns SET content = ?, result = coalesce(?, result) WHERE id = ?",
                (mended(content), dump_result(result), turn),
            )

    def delete_turn(self, turn: int) -> None:
        """Takes one turn out; what followed it follows the one before."""
        with self._writing() as database:
            for parent, conversation in database.execute(
                "SELECT parent, conversation FROM turns WHERE id = ?", (turn,)
            ):
                database.execute("UPDATE conversations SET leaf = ? WHERE leaf = ?", (parent, turn))
                database.execute(
                    "UPDATE turns SET parent = ? WHERE conversation = ? AND parent = ?", (parent, conversation, turn)
                )
            database.execute("DELETE FROM turns WHERE id = ?", (turn,))

    def _siblings(self, conversation: int) -> dict[int | None, tuple[int, ...]]:
        """The turns that follow each turn."""
        found: dict[int | None, tuple[int, ...]] = {}
        for number, parent in self._read(
            "SELECT id, parent FROM turns WHERE conversation = ? ORDER BY id", (conversation,)
        ):
            found[parent] = (*found.get(parent, ()), number)
        return found


def open_chats(path: Path) -> ChatStore:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    return open_or_in_memory(ChatStore, path, _KEPT)


_COLUMNS = "id, title, created, changed"
_QUESTIONS = "(SELECT count(*) FROM turns WHERE conversation = conversations.id AND role = 'user')"
_FOUND = (
    "(SELECT content FROM turns WHERE conversation = conversations.id AND instr(fold(content), ?) ORDER BY id LIMIT 1)"
)
_HOLDS = (
    " AND (instr(fold(title), ?) OR EXISTS"
    " (SELECT 1 FROM turns WHERE conversation = conversations.id AND instr(fold(content), ?)))"
)


def _excerpt(content: str, word: str) -> str:
    """One line from a few words before `word` on."""
    at = max(0, content.casefold().find(word))
    start = max(0, at - BEFORE)
    if start:
        start = content.find(" ", start, at) + 1 or start
    line = " ".join(content[start : start + EXCERPT_LENGTH].split())
    return f"…{line}" if start else line


def _fold(words: str) -> str:
    """For SQLite, whose own lower() knows ASCII only."""
    return words.casefold()


def _leaf(database: sqlite3.Connection, conversation: int) -> int | None:
    """The turn that is shown last. Raises StoreFailed when the conversation is gone or deleted."""
    row = database.execute(
        "SELECT leaf FROM conversations WHERE id = ? AND deleted IS NULL", (conversation,)
    ).fetchone()
    if row is None:
        message, hint = _KEPT.gone
        raise StoreFailed(message, hint=hint)
    return None if row[0] is None else int(row[0])


def _title(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
