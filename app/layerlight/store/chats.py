"""ChatStore: conversations and their turns, in SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from layerlight.core.characters import mended
from layerlight.core.errors import StoreFailed
from layerlight.core.messages import RunResult, TextRequest
from layerlight.core.settings import keep_aside

Kind = TypeVar("Kind")
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


class ChatStore:
    """Chats in one SQLite file. Belongs to the thread that made it; several programs may have the file open.

    Every method has committed before it returns and raises StoreFailed when it could not. A crash of the program
    loses nothing that was committed; a power cut may lose the last moments, never the file.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Opens or makes the file; None keeps chats in memory only.

        A file that is no whole database is kept aside and `notice` says so. Raises StoreFailed when there can be no
        file at this path, or when a newer version wrote it.
        """
        self.notice = ""
        self._clock = clock
        if path is not None:
            _make_parent(path)
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError as error:
            if path is None or isinstance(error, sqlite3.OperationalError):
                raise _failed(error) from error
            self.notice = _set_aside(path, error)
            self._database = _reopen(path)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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

    # -- the file ------------------------------------------------------------------------------------------------

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with _saying():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. IMMEDIATE takes the write lock at once: two programs wait for each other, never fail."""
        with _saying():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise


def open_chats(path: Path) -> ChatStore:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    try:
        return ChatStore(path)
    except StoreFailed as failure:
        store = ChatStore(None)
        store.notice = f"Chats of this session are not saved. {failure.message} {failure.hint}".strip()
        return store


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"The folder {path.parent} can't be made: {error.strerror or error}.") from error


def _open(path: Path | None) -> sqlite3.Connection:
    """A checked connection. Raises sqlite3.DatabaseError for a broken file, StoreFailed for a newer one."""
    database = sqlite3.connect(path or ":memory:", timeout=10, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA foreign_keys = ON")
        found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        _make_schema(database)
    except BaseException:
        database.close()
        raise
    return database


def _make_schema(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise StoreFailed(
            "The chats were written by a newer version of Layerlight.", hint="They are left as they are: update it."
        )
    if version == 0:
        for statement in _SCHEMA.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")


def _reopen(path: Path) -> sqlite3.Connection:
    with _saying():
        return _open(path)


def _set_aside(path: Path, error: sqlite3.Error) -> str:
    try:
        aside = keep_aside(path)
        for ending in ("-wal", "-shm"):
            beside = path.with_name(path.name + ending)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + ending))
    except OSError as trouble:
        raise StoreFailed(
            f"The chats in {path} can't be read ({error}), nor can the file be moved ({trouble.strerror or trouble}).",
            hint="Move it away by hand.",
        ) from trouble
    return f"The chats could not be read ({error}). A new file was begun; the old one is kept as {aside.name}."


@contextmanager
def _saying() -> Iterator[None]:
    """SQLite's errors as a StoreFailed. ProgrammingError stays: a wrong thread or a closed store is our fault."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise _failed(error) from error


def _failed(error: sqlite3.Error) -> StoreFailed:
    if isinstance(error, sqlite3.IntegrityError):
        return StoreFailed("That conversation is gone.", hint="Another window may have deleted it: begin a new chat.")
    return StoreFailed(
        f"The chats can't be read or written: {error}.",
        hint="Check that the disk has room and that the file may be written to.",
    )


def _title(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _dump(value: TextRequest | RunResult | None) -> str | None:
    """JSON in ASCII: the standard library escapes lone surrogates, where msgspec refuses them."""
    return None if value is None else json.dumps(msgspec.to_builtins(value))


def _turn(row: tuple[Any, ...]) -> Turn:
    number, conversation, role, content, created, request, folder, plan, result = row
    return Turn(
        number,
        conversation,
        role,
        content,
        created,
        _load(request, TextRequest),
        folder,
        plan,
        _load(result, RunResult),
    )


def _load(text: str | None, kind: type[Kind]) -> Kind | None:
    """The saved value; None when another version wrote a shape that this one can't use."""
    if text is None:
        return None
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, msgspec.ValidationError):
        return None
