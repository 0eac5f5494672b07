"""A file that weights are read from, past the system's cache where that can be asked for."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from pathlib import Path

from layerlight.engine.ring.page_buffer import PAGE

log = logging.getLogger(__name__)

_REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems answer that read through the cache only."""


class CutShort(OSError):
    """The file ended before the bytes that were to be read."""


class SourceFile:
    """An open file, read from several threads at once. What was opened stays readable whatever its name becomes.

    `direct` is whether reads go past the cache; where a file system refuses them they go through it, and what they
    left there is let go.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError when it can't be opened."""
        self.path = path
        self._number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._was = _signature(self._number)
        self.size = self._was[0]
        self._turn = threading.Lock()
        self._open = [self._number]
        self._direct = self._open_direct()
        _avoid_cache(self._number)

    @property
    def direct(self) -> bool:
        return self._direct is not None

    def read(self, offset: int, into: memoryview) -> None:
        """Fills `into` from `offset` on, as far as the file goes. `offset` is a multiple of a page, `into` is aligned.

        Raises OSError when it can't be read, CutShort when it has become shorter.
        """
        wanted = min(len(into), self.size - offset)
        done = self._read_direct(offset, into)
        if done < wanted:
            self._read_cached(offset, done, into[:wanted])

    def changed(self) -> bool:
        """Whether it was written to since it was opened."""
        return _signature(self._number) != self._was

    def close(self) -> None:
        self._direct = None
        while self._open:
            os.close(self._open.pop())

    def _open_direct(self) -> int | None:
        if not hasattr(os, "O_DIRECT") or not hasattr(os, "preadv"):
            return None
        try:
            number = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        except OSError as error:
            self._tell_refusal(error)
            return None
        self._open.append(number)
        return number

    def _read_direct(self, offset: int, into: memoryview) -> int:
        """Bytes that came past the cache: whole pages, or all to the end of the file."""
        number, done = self._direct, 0
        try:
            while number is not None and done < len(into) and done % PAGE == 0:
                count = os.preadv(number, [into[done:]], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            self._direct = None  # it stays open until the end: other threads may be in a read of it
            self._tell_refusal(error)
        return done

    def _read_cached(self, offset: int, done: int, into: memoryview) -> None:
        while done < len(into):
            count = self._read_once(offset + done, into[done:])
            if count == 0:
                raise CutShort(errno.EIO, "it ends too early", self.path)
            done += count
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._number, offset, done, os.POSIX_FADV_DONTNEED)

    def _read_once(self, offset: int, into: memoryview) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._number, [into], offset)
        with self._turn:  # where a read has no place of its own, the descriptor's is used by one thread at a time
            os.lseek(self._number, offset, os.SEEK_SET)
            piece = os.read(self._number, len(into))
        into[: len(piece)] = piece
        return len(piece)

    def _tell_refusal(self, error: OSError) -> None:
        log.warning(
            "%s can't be read past the system's cache (%s): it is read through it",
            Path(self.path).name,
            error.strerror or error,
        )


def _signature(number: int) -> tuple[int, int]:
    now = os.fstat(number)
    return now.st_size, now.st_mtime_ns


def _avoid_cache(number: int) -> None:
    """macOS reads past its cache by a flag of the descriptor."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(number, fcntl.F_NOCACHE, 1)
