"""What a folder's files were: whether what was learnt of them still holds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

Stamps = tuple[tuple[str, int, int, int], ...]
"""(path, bytes, nanoseconds of the last change, number of the file) of each, sorted; links are followed."""


def stamps(folder: str) -> Stamps:
    """Of all files at any depth of `folder`; of a folder that is not there none. Never raises OSError."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = str(Path(place) / name)
            with suppress(OSError):
                now = os.stat(path)
                found.append((path, now.st_size, now.st_mtime_ns, now.st_ino))
    return tuple(sorted(found))
