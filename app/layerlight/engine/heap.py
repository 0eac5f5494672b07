"""glibc's heap: one arena for all threads, whose free pages can be handed back."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_ARENA_MAX = -8
"""mallopt's number for it."""


def use_one_arena() -> None:
    """Makes every thread allocate from the main arena; call it before threads are made.

    A thread that reads weights otherwise gets an arena of its own, and up to 64 MiB at the end of each stay there
    whatever is trimmed: after 40 cancelled loads 60 MiB more were held, with one arena 0.5 MiB.
    """
    change = _glibc("mallopt")
    if change is not None:
        change(_ARENA_MAX, 1)


def trim() -> None:
    """Hands free pages of the heap back to the system. Systems without glibc do so by themselves."""
    release = _glibc("malloc_trim")
    if release is not None:
        release(0)


def _glibc(name: str) -> Any:
    """A function of this process's C library, or None where it has none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
