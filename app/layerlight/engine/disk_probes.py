"""Probes of a disk: layers read ahead while a model runs, and one long read."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from layerlight.core.job import Job
from layerlight.core.pacing.rate_names import DISK_LOAD
from layerlight.engine.decode_stack import StackOnDisk

CHUNK = 8 * 2**20


class NotCold(OSError):
    """The file could not be read from the disk itself: the system kept it, or never had it on a disk."""


class DiskProbe:
    """Seconds per layer of a decode pass through layers that are read from disk ahead of every pass."""

    def __init__(self, name: str, stack: StackOnDisk, tokens: int = 6) -> None:
        self.name = name
        self.stage = "Layers on disk"
        self._stack, self._tokens = stack, tokens
        self._bytes = stack.bytes_on_disk

    def sample(self, job: Job) -> float:
        """The file is let go after the first token, and what was read ahead by then is used up by the second.

        Raises NotCold where letting go failed.
        """
        before: list[int | None] = []

        def let_go() -> None:
            if not before:
                forget_file(self._stack.file)
                before.append(bytes_read())

        seconds = self._stack.stack.seconds(job, self._tokens, let_go)
        require_read(before[0], self._bytes)
        return seconds


class LongReadProbe:
    """Bytes per second of one read of a whole file from its beginning, nothing of it held in memory."""

    name = DISK_LOAD
    stage = "One long read from disk"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._chunk = bytearray(CHUNK)

    def sample(self, job: Job) -> float:
        forget_file(self._file)
        before, done, started = bytes_read(), 0, time.perf_counter()
        with self._file.open("rb", buffering=0) as file:
            while count := file.readinto(self._chunk):
                done += count
                job.check()
        seconds = time.perf_counter() - started
        require_read(before, done)
        return done / seconds


def forget_file(file: Path) -> None:
    """Has the system let go of what it holds of a file in memory. Raises NotCold where it can't be asked to."""
    if not hasattr(os, "posix_fadvise"):
        raise NotCold("This system can't be asked to forget a file.")
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def bytes_read() -> int | None:
    """Bytes that this process has had read from disks since it began; None where the system doesn't count."""
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)


def require_read(before: int | None, expected: int) -> None:
    """Raises NotCold when less than nine tenths of these bytes came from the disk since `before` was asked."""
    now = bytes_read()
    if before is not None and now is not None and now - before < 0.9 * expected:
        raise NotCold("The file was still in memory when it was read.")
