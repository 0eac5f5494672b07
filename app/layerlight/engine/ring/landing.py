"""Where a ring's units come to lie, and who brings their pieces there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from layerlight.engine.ring.page_buffer import PageBuffer
from layerlight.engine.ring.piece_reading import PieceReader
from layerlight.engine.ring.source_file import SourceFile


class Buffer(Protocol):
    """Memory of one unit at a time."""

    @property
    def tensor(self) -> torch.Tensor:
        """Its bytes, for views of weights."""
        ...

    @property
    def size(self) -> int: ...

    def holds(self, address: int) -> bool:
        """Whether this address lies in it."""
        ...


class Reader(Protocol):
    """Brings pieces, for one thread."""

    def read(self, piece: Any, into: Any) -> None:
        """Raises what the source or the device does; then the unit is not whole."""
        ...


class Landing(Protocol):
    """Makes a ring's buffers, and the readers that fill them."""

    def buffer(self, size: int) -> Buffer: ...

    def reader(self, files: Mapping[str, SourceFile]) -> Reader: ...


class RamLanding:
    """Units come from their files straight into RAM."""

    def __init__(self, *, casts: bool) -> None:
        """`casts`: some of what is read becomes another dtype."""
        self._casts = casts

    def buffer(self, size: int) -> PageBuffer:
        return PageBuffer(size)

    def reader(self, files: Mapping[str, SourceFile]) -> PieceReader:
        return PieceReader(files, casts=self._casts)
