"""Views of files in this process's memory, as Linux lists them."""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import sys
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_PAGES = Path("/proc/self/smaps")
_SIZES = Path("/proc/self/statm")
_DROP_FROM_MEMORY = 4
"""MADV_DONTNEED: a clean page of a private file view goes; reading it again brings it back from the file."""


@dataclass(frozen=True, slots=True)
class FileView:
    """Addresses `start` to `end` show the file at `path`, from `offset` on."""

    start: int
    end: int
    path: str
    offset: int = 0
    inode: int = 0


class FileViews:
    """All views of regular files at one moment; empty where the system does not tell."""

    def __init__(self) -> None:
        self._views = _read()
        self._starts = [view.start for view in self._views]

    def at(self, address: int) -> FileView | None:
        """The view that holds this address, or None."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._views[index].end:
            return self._views[index]
        return None

    def of(self, files: Container[str]) -> tuple[FileView, ...]:
        """Views of these files, whose paths hold no links."""
        return tuple(view for view in self._views if view.path in files)


def weight_files(folder: Path) -> frozenset[str]:
    """Real paths of the weight files below `folder`: in a cache of downloads they are links to elsewhere."""
    return frozenset(os.path.realpath(path) for path in folder.rglob("*.safetensors"))


def resident() -> int:
    """Bytes of all files' pages in this process's memory; 0 where the system does not tell. Quick to ask."""
    try:
        return int(_SIZES.read_text(encoding="ascii").split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def written_views() -> frozenset[int]:
    """Where views of files begin of which this process holds pages of its own: what it wrote there is in no file."""
    found, start = set(), 0
    for line in _PAGES.read_text(errors="surrogateescape").splitlines() if _PAGES.exists() else ():
        first = line.split(maxsplit=1)[0]
        if "-" in first and not first.endswith(":"):
            start = int(first.partition("-")[0], 16)
        elif first == "Anonymous:" and line.split()[1] != "0":
            found.add(start)
    return frozenset(found)


def release(files: Container[str]) -> None:
    """Lets the pages of these weight files go from this process's memory.

    What was read from them has been copied by then; what was not is read again on demand. Without it a load that
    casts would hold the whole source beside the result.
    """
    if sys.platform != "linux":
        return
    for view in FileViews().of(files):
        let_go(view.start, view.end)


def let_go(start: int, end: int) -> None:
    """Lets whole pages of a file's view between two addresses go from this process's memory (Linux)."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DROP_FROM_MEMORY)


def _read() -> list[FileView]:
    if sys.platform != "linux":
        return []
    views = []
    for line in _MAPS.read_text(errors="surrogateescape").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[4] != "0":
            start, _, end = parts[0].partition("-")
            path = parts[5].removesuffix(" (deleted)")
            views.append(FileView(int(start, 16), int(end, 16), path, int(parts[2], 16), int(parts[4])))
    return views
