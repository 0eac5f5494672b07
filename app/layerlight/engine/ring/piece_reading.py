"""One piece of a unit, from its file into a buffer; cast on the way where it is loaded as another dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from layerlight.engine.ring.page_buffer import PageBuffer
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import PIECE, Cast, Piece

_AT_ONCE = 32704
"""Elements cast by one call: from 32,768 on torch would take threads of its own for each of ours."""


class Readable(Protocol):
    """Memory in RAM, aligned to pages: as a tensor of bytes, and as what files are read into."""

    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def bytes(self) -> memoryview: ...


class PieceReader:
    """Reads pieces for one thread, with a place of its own for what is cast."""

    def __init__(self, files: Mapping[str, SourceFile], *, casts: bool) -> None:
        self._files = files
        self._aside = PageBuffer(PIECE) if casts else None

    def read(self, piece: Piece, into: Readable) -> None:
        """Raises OSError when the file can't be read."""
        file = self._files[piece.path]
        if piece.cast is None or self._aside is None:
            file.read(piece.offset, into.bytes[piece.position : piece.position + piece.length])
            return
        file.read(piece.offset, self._aside.bytes[: piece.length])
        _cast(piece.cast, self._aside.tensor, into.tensor[piece.position :])


def _cast(cast: Cast, source: torch.Tensor, target: torch.Tensor) -> None:
    """`source` and `target` are bytes."""
    raw = source[cast.skip : cast.skip + cast.count * cast.stored.itemsize]
    if cast.skip % cast.stored.itemsize:
        raw = raw.clone()
    stored = raw.view(cast.stored)
    loaded = target[: cast.count * cast.dtype.itemsize].view(cast.dtype)
    for first in range(0, cast.count, _AT_ONCE):
        loaded[first : first + _AT_ONCE].copy_(stored[first : first + _AT_ONCE])
