"""The files that a loaded model still reads: views of them, and layers on disk. One that changes ends the run in words.

A view of a file that was cut short is a bus error, which no process survives: it must be found before it is touched.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from layerlight.core.errors import RunFailed

GLANCE = 0.02
"""Seconds between two looks within a pass."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An open file with what it was like; `by_name` where each read opens it anew."""

    path: str
    number: int
    size: int
    changed: int
    inode: tuple[int, int]
    by_name: bool


class ReadFiles:
    """Holds files open and looks whether they are still as they were."""

    def __init__(self, viewed: Iterable[str] = (), read_by_name: Iterable[str] = ()) -> None:
        self._held: list[_Held] = []
        self._looked = 0.0
        names = frozenset(read_by_name)
        for path in sorted(names | frozenset(viewed)):
            with contextlib.suppress(OSError):  # gone already: reading it will tell
                self._hold(path, path in names)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(held.path for held in self._held)

    def check(self) -> None:
        """Raises RunFailed for the first file that was changed, cut short, replaced or taken away."""
        self._looked = time.monotonic()
        for held in self._held:
            words = _change(held)
            if words:
                raise RunFailed(
                    f"{Path(held.path).name} {words} while the model was in use.",
                    hint="Load the model again once its files are whole.",
                )

    def glance(self) -> None:
        """`check`, at most every 20 ms."""
        if time.monotonic() - self._looked >= GLANCE:
            self.check()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop().number)

    def _hold(self, path: str, by_name: bool) -> None:
        number = os.open(path, os.O_RDONLY)
        now = os.fstat(number)
        self._held.append(_Held(path, number, now.st_size, now.st_mtime_ns, (now.st_dev, now.st_ino), by_name))


def _change(held: _Held) -> str:
    try:
        now = os.fstat(held.number)
        if held.by_name:
            named = os.stat(held.path)
            if (named.st_dev, named.st_ino) != held.inode:
                return "was replaced"
    except OSError as error:
        return f"can't be read any more ({error.strerror or error})"
    if now.st_size < held.size:
        return f"was cut short (from {held.size:,} to {now.st_size:,} bytes)"
    if now.st_size != held.size or now.st_mtime_ns != held.changed:
        return "was changed"
    return ""
