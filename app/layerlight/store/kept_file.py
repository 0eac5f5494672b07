"""KeptFile: what every store is, one SQLite file that one thread at a time uses."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from layerlight.core.errors import StoreFailed
from layerlight.store.database import Kept, open_database, saying, writing

Store = TypeVar("Store", bound="KeptFile")
Kind = TypeVar("Kind")


class KeptFile:
    """Belongs to the thread that made it, until another takes it over; several programs may have the file open."""

    def __init__(self, path: Path | None, kept: Kept, check: bool = True) -> None:
        """Opens and checks the file, or makes it; None keeps everything in memory.

        A file that is no whole database is kept aside and `notice` says so. Raises StoreFailed when there can be no
        file at this path, or when a newer version wrote it.
        """
        self._kept, self.path = kept, path
        self._owner = threading.get_ident()
        self._database, self.notice = open_database(path, kept, check)

    def take_over(self) -> Self:
        """It is the calling thread's from now on; the one before must be done with it.

        So a file can be opened and checked, which takes as long as it is large, beside the thread that will use it.
        """
        self._owner = threading.get_ident()
        return self

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with saying(self._kept):
            return self._own().execute(query, values).fetchall()

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return writing(self._own(), self._kept)

    def _own(self) -> sqlite3.Connection:
        """Raises sqlite3.ProgrammingError on a thread it does not belong to: two would part each other’s writes."""
        if threading.get_ident() != self._owner:
            raise sqlite3.ProgrammingError(f"the {self._kept.what} are used on a thread that has not taken them over")
        return self._database


def open_or_in_memory(make: Callable[[Path | None], Store], path: Path, kept: Kept) -> Store:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    try:
        return make(path)
    except StoreFailed as failure:
        store = make(None)
        words = f"{kept.what.capitalize()} of this session are not saved. {failure.message} {failure.hint}"
        store.notice = words.strip()
        return store


def dumped(value: object) -> str:
    """JSON in ASCII: the standard library escapes lone surrogates, where msgspec refuses them."""
    return json.dumps(msgspec.to_builtins(value))


def loaded(text: str, kind: type[Kind]) -> Kind | None:
    """The saved value; None when another version wrote a shape that this one can't use."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, msgspec.ValidationError):
        return None
