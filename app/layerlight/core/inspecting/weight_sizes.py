"""Sizes of a folder's weight files at one moment, so that one cut short since can be named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_ENDINGS = (".safetensors", ".bin")


@dataclass(frozen=True, slots=True)
class WeightSizes:
    folder: str
    sizes: tuple[tuple[str, int], ...]
    """(name in the folder, bytes)."""

    def changed(self) -> str:
        """The first file that has another size now or is gone, in words; empty when all are as they were."""
        for name, size in self.sizes:
            try:
                now = os.stat(Path(self.folder, name)).st_size
            except OSError:
                return f"{name} is gone"
            if now != size:
                return f"{name} has {now:,} bytes in place of {size:,}"
        return ""


def weight_sizes(folder: str) -> WeightSizes:
    """Of the weight files directly in `folder`; none where it can't be read."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat().st_size) for entry in entries if entry.name.endswith(_ENDINGS)]
    except OSError:
        found = []
    return WeightSizes(folder, tuple(sorted(found)))
