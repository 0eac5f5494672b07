"""A SQLite file that survives: checked when opened, kept aside when broken, its failures in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from layerlight.core.errors import StoreFailed
from layerlight.core.settings import keep_aside


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file holds: its name in sentences (plural), its schema, and the version of that."""

    what: str
    schema: str
    version: int
    gone: tuple[str, str] = ("What this belonged to is gone.", "")
    """Message and hint when a row refers to one that is not there any more."""
    upgrades: tuple[str, ...] = ()
    """Statements that lead from version 1 to 2, from 2 to 3, and so on; `schema` is that of version 1."""


def open_database(path: Path | None, kept: Kept, check: bool = True) -> tuple[sqlite3.Connection, str]:
    """(a connection, a notice) to the file, made where there is none; None keeps it in memory.

    `check` reads the whole file, which takes as long as it is large: once a program is enough.

    The connection can go from thread to thread; whoever holds it sees to it that one at a time uses it.

    A file that is no whole database is kept aside and the notice says so. Raises StoreFailed when there can be no
    file at this path, or when a newer version wrote it.
    """
    if path is not None:
        _make_parent(path)
    try:
        return _open(path, kept, check), ""
    except sqlite3.DatabaseError as error:
        if path is None or not check or isinstance(error, sqlite3.OperationalError):
            raise _failed(error, kept) from error
        notice = _set_aside(path, error, kept)
        with saying(kept):
            return _open(path, kept), notice


@contextmanager
def saying(kept: Kept) -> Iterator[None]:
    """SQLite's errors as a StoreFailed. ProgrammingError stays: a closed store is our fault."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise _failed(error, kept) from error


@contextmanager
def writing(database: sqlite3.Connection, kept: Kept) -> Iterator[sqlite3.Connection]:
    """One transaction. IMMEDIATE takes the write lock at once: two programs wait for each other, never fail."""
    with saying(kept):
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"The folder {path.parent} can't be made: {error.strerror or error}.") from error


def _open(path: Path | None, kept: Kept, check: bool = True) -> sqlite3.Connection:
    """A checked connection. Raises sqlite3.DatabaseError for a broken file, StoreFailed for a newer one."""
    database = sqlite3.connect(path or ":memory:", timeout=10, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA foreign_keys = ON")
        found = database.execute("PRAGMA quick_check(1)").fetchone()[0] if check else "ok"
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        _make_schema(database, kept)
    except BaseException:
        database.close()
        raise
    return database


def _make_schema(database: sqlite3.Connection, kept: Kept) -> None:
    if database.execute("PRAGMA user_version").fetchone()[0] == kept.version:
        return
    database.execute("BEGIN IMMEDIATE")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > kept.version:
        raise StoreFailed(
            f"The {kept.what} were written by a newer version of Layerlight.",
            hint="They are left as they are: update it.",
        )
    for script in (kept.schema, *kept.upgrades)[version:]:
        for statement in script.split(";"):
            database.execute(statement)
    database.execute(f"PRAGMA user_version = {kept.version}")
    database.execute("COMMIT")


def _set_aside(path: Path, error: sqlite3.Error, kept: Kept) -> str:
    try:
        aside = keep_aside(path)
        for ending in ("-wal", "-shm"):
            beside = path.with_name(path.name + ending)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + ending))
    except OSError as trouble:
        raise StoreFailed(
            f"The {kept.what} in {path} can't be read ({error}), nor can the file be moved"
            f" ({trouble.strerror or trouble}).",
            hint="Move it away by hand.",
        ) from trouble
    return f"The {kept.what} could not be read ({error}). A new file was begun; the old one is kept as {aside.name}."


def _failed(error: sqlite3.Error, kept: Kept) -> StoreFailed:
    if isinstance(error, sqlite3.IntegrityError):
        message, hint = kept.gone
        return StoreFailed(message, hint=hint)
    return StoreFailed(
        f"The {kept.what} can't be read or written: {error}.",
        hint="Check that the disk has room and that the file may be written to.",
    )
