"""Memory that disks write straight into: private, page-aligned, of huge pages where the system has them."""

from __future__ import annotations

import mmap

import torch

PAGE = 4096
"""What offsets, lengths and addresses of direct reads are multiples of; disks ask for that or less."""
HUGE_PAGE = 2 * 2**20


class PageBuffer:
    """`size` bytes of anonymous memory, given back when its last view goes."""

    def __init__(self, size: int) -> None:
        """Raises MemoryError or OSError when there is no such memory."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        alignment = HUGE_PAGE if size >= HUGE_PAGE else PAGE
        mapped = _private(size + alignment)
        whole = torch.frombuffer(mapped, dtype=torch.uint8)
        begin = -whole.data_ptr() % alignment
        self.tensor = whole[begin : begin + size]
        """The bytes, for views of weights."""
        self.bytes = memoryview(mapped)[begin : begin + size]
        """The same, for reads."""

    @property
    def size(self) -> int:
        return len(self.bytes)

    def holds(self, address: int) -> bool:
        """Whether this address lies in it."""
        return 0 <= address - self.tensor.data_ptr() < self.size


def _private(size: int) -> mmap.mmap:
    """Shared memory, Python's default, has no huge pages: direct reads then take up to three times as long."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapped.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them: small pages serve too
            return mapped
    return mapped
