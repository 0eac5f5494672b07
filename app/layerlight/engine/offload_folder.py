"""Where layers rest on disk when their own files can't be read in place: one folder a run, none left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from pathlib import Path

from layerlight.core.device import format_size
from layerlight.core.errors import BadRequest, DoesNotFit

PREFIX = "layerlight-run-"
_LOCK_SUFFIX = ".lock"

_own: set[OffloadFolder] = set()
"""Folders that this process holds, so that it can leave none behind when it is ended in the middle of a job."""


class OffloadFolder:
    """A folder of this run's own below `root`, held by a lock that ends with the process, however that ends."""

    def __init__(self, root: Path) -> None:
        """Makes the folder, after removing what dead runs left in `root`. Raises BadRequest when it can't be made."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            sweep(root)
            self.path, self._lock_path, self._lock = _claim(root)
        except OSError as error:
            raise BadRequest(
                f"The offload folder {root} can't be used: {error.strerror or error}.",
                hint="Choose a folder that can be written to.",
            ) from error
        _own.add(self)

    def require_room(self, size: int) -> None:
        """Raises DoesNotFit unless `size` bytes are free there."""
        free = shutil.disk_usage(self.path).free
        if size > free:
            raise DoesNotFit(
                f"Layers of {format_size(size)} must be written to {self.path.parent}, "
                f"which has {format_size(free)} free.",
                hint="Choose an offload folder on a disk with more room, or keep fewer layers on disk.",
            )

    def remove(self) -> None:
        """Removes the folder and all in it; a second call does nothing."""
        _own.discard(self)
        _remove_tree(self.path)
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            os.close(lock)


def remove_own_folders() -> None:
    """Removes every folder this process still holds; for its last moment."""
    for folder in tuple(_own):
        folder.remove()


def sweep(root: Path) -> int:
    """Removes folders of runs that ended without cleaning up; live ones are kept. Returns how many went."""
    removed = 0
    for lock_path in root.glob(f"{PREFIX}*{_LOCK_SUFFIX}"):
        lock = _take(lock_path)
        if lock is None:
            continue
        _remove_tree(lock_path.with_suffix(""))
        with contextlib.suppress(OSError):
            lock_path.unlink()
        os.close(lock)
        removed += 1
    return removed


def _claim(root: Path) -> tuple[Path, Path, int | None]:
    while True:
        path = root / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        lock_path = path.with_name(path.name + _LOCK_SUFFIX)
        lock = _take(lock_path, create=True)
        if lock is not None:
            path.mkdir()
            return path, lock_path, lock


def _take(lock_path: Path, *, create: bool = False) -> int | None:
    """An open, locked descriptor, or None while another process holds it.

    A sweeper may lock and unlink the file between our open and our lock; then what we locked is no longer that name.
    """
    try:
        lock = os.open(lock_path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
    except OSError:
        if create and not lock_path.exists():
            raise
        return None
    try:
        _lock_exclusively(lock)
        if os.fstat(lock).st_ino == os.stat(lock_path).st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _lock_exclusively(lock: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_tree(path: Path) -> None:
    """Twice, because a file may still be written while the process is being ended."""
    for _ in range(2):
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
