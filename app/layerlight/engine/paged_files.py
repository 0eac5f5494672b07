"""Files mapped into memory: views of what lies in them, and threads that bring the pages that are needed next."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch

from layerlight.engine.open_files import allow_open_files
from layerlight.engine.ring.layer_ring import PATIENCE, READERS
from layerlight.engine.ring.unit_layout import PIECE, StoredTensor

log = logging.getLogger(__name__)

Range = tuple[str, int, int]
"""(path, begin, end) of bytes of a file."""

_POPULATE_READ = 22
"""MADV_POPULATE_READ, of Linux 5.14: reads pages in and says so when it can't, where touching them is a bus error."""
_LISTENING = 0.05
"""Seconds between two looks for a stop while pages are waited for."""


class PagedFiles:
    """Files whose pages this process sees. They are the system's own: it may take them back and read them again."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises OSError when a file can't be opened."""
        self._numbers: dict[str, int] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._populates = hasattr(mmap.mmap, "madvise") and hasattr(os, "preadv")
        names = tuple(dict.fromkeys(paths))
        allow_open_files(4 * len(names))
        try:
            for path in names:
                self._numbers[path] = os.open(path, os.O_RDONLY)
                self._maps[path] = mmap.mmap(self._numbers[path], 0, access=mmap.ACCESS_COPY)
        except OSError:
            self._let_go_of_files()
            raise
        self._threads = ThreadPoolExecutor(READERS, "pages")
        self._under_way: set[Future[None]] = set()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def view(self, stored: StoredTensor, shape: Sequence[int]) -> torch.Tensor:
        """The tensor as it lies in its file. `stored.begin` must be a multiple of an element's size."""
        count = stored.size // stored.dtype.itemsize
        flat = torch.frombuffer(self._maps[stored.path], dtype=stored.dtype, count=count, offset=stored.begin)
        return flat.view(*shape)

    def bring(self, ranges: Sequence[Range], check: Callable[[], None]) -> None:
        """Has these bytes read into memory, by several threads at once.

        `check` is called meanwhile, and may raise. Raises OSError when they can't be read.
        """
        abandoned = threading.Event()
        pieces = [piece for each in ranges for piece in _pieces(each)]
        pending = self._under_way = {
            self._threads.submit(self._bring_all, pieces[first::READERS], abandoned)
            for first in range(min(READERS, len(pieces)))
        }
        try:
            while pending:
                done, pending = wait(pending, _LISTENING)
                for each in done:
                    each.result()
                if pending:
                    check()
        finally:
            abandoned.set()

    def let_go(self, ranges: Sequence[Range]) -> None:
        """These bytes are no longer this process's memory; the system may still have them in its cache."""
        if not self._populates:
            return
        for path, begin, end in ranges:
            start = begin // mmap.PAGESIZE * mmap.PAGESIZE
            if path in self._maps:
                self._maps[path].madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        """Ends the threads. Pages go with the last view of them.

        A thread whose read does not return is left behind with its file.
        """
        hung = wait(self._under_way, PATIENCE).not_done
        self._threads.shutdown(wait=not hung, cancel_futures=True)
        if hung:
            log.warning("a read does not return: its thread is left behind")
        else:
            self._let_go_of_files()

    def _let_go_of_files(self) -> None:
        self._maps.clear()
        while self._numbers:
            os.close(self._numbers.popitem()[1])

    def _bring_all(self, pieces: Sequence[Range], abandoned: threading.Event) -> None:
        for each in pieces:
            if abandoned.is_set():
                return
            self._bring(*each)

    def _bring(self, path: str, begin: int, end: int) -> None:
        start = begin // mmap.PAGESIZE * mmap.PAGESIZE
        if self._populates:
            if hasattr(os, "posix_fadvise"):  # all of it asked for at once: page by page a disk is slow
                os.posix_fadvise(self._numbers[path], start, end - start, os.POSIX_FADV_WILLNEED)
            try:
                self._maps[path].madvise(_POPULATE_READ, start, end - start)
            except OSError as error:
                if error.errno == errno.EFAULT:  # what touching it would have been a bus error for
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path) from error
                if error.errno != errno.EINVAL:
                    raise
                self._populates = False  # an older system: reading them brings them into its cache at least
            else:
                return
        if hasattr(os, "pread"):
            os.pread(self._numbers[path], end - start, start)


def _pieces(whole: Range) -> Iterator[Range]:
    """The same range in reads of a few MB."""
    path, begin, end = whole
    for at in range(begin, end, PIECE):
        yield path, at, min(end, at + PIECE)
