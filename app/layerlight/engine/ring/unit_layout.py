"""How a unit's weights lie in files and in a buffer: what is read in which pieces, and the views that come of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from layerlight.engine.ring.page_buffer import PAGE

PIECE = 4 * 2**20
"""Bytes of one read at most."""
GAP = 64 * 2**10
"""Bytes of other weights between two of ours that are read along rather than skipped."""
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`size` bytes from `begin` of the file at `path`."""

    path: str
    begin: int
    size: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class UnitTensor:
    """A weight as it is stored, and what it is loaded as."""

    stored: StoredTensor
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A weight in a buffer: `position` in bytes."""

    position: int
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """`count` elements, `skip` bytes after the beginning of what was read, become another dtype in the buffer."""

    skip: int
    count: int
    stored: torch.dtype
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Piece:
    """One read: whole pages of the file at `path`, into the buffer at `position`.

    With a `cast` they are read beside the buffer and `position` is where the elements come to lie.
    """

    path: str
    offset: int
    length: int
    position: int
    cast: Cast | None = None


class Layout(Protocol):
    """What a ring knows of a unit: the bytes and views of its buffer, and the pieces that fill it, from which files."""

    @property
    def size(self) -> int: ...
    @property
    def views(self) -> tuple[View, ...]: ...
    @property
    def pieces(self) -> tuple[Any, ...]: ...
    @property
    def paths(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """`size` bytes of a buffer, filled by `pieces` in the files' order, seen through `views` in the tensors' order."""

    size: int
    views: tuple[View, ...]
    pieces: tuple[Piece, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.path for piece in self.pieces))


def layout_of(tensors: Sequence[UnitTensor]) -> UnitLayout:
    """Where these tensors come to lie.

    What is stored as it is loaded is read in place, neighbours in one read, each as far from the beginning of a page
    as in its file. The rest is cast on the way.
    """
    views: dict[int, View] = {}
    pieces: list[Piece] = []
    end = 0
    for run in _runs([(number, each) for number, each in enumerate(tensors) if _in_place(each)]):
        begin, stop = _pages(run[0][1].stored.begin, max(each.stored.begin + each.stored.size for _, each in run))
        for number, each in run:
            views[number] = View(end + each.stored.begin - begin, each.dtype, each.shape)
        pieces += _reads(run[0][1].stored.path, begin, stop, end)
        end += stop - begin
    for number, each in enumerate(tensors):
        if number not in views:
            end = -(-end // _ALIGNMENT) * _ALIGNMENT
            views[number] = View(end, each.dtype, each.shape)
            pieces += _casts(each, end)
            end += each.dtype.itemsize * each.stored.size // each.stored.dtype.itemsize
    return UnitLayout(end, tuple(views[number] for number in range(len(tensors))), tuple(pieces))


def _in_place(tensor: UnitTensor) -> bool:
    """An element that lies across its own size in the file would do so in memory."""
    stored = tensor.stored
    return stored.dtype == tensor.dtype and stored.begin % stored.dtype.itemsize == 0 and stored.size > 0


def _runs(tensors: list[tuple[int, UnitTensor]]) -> Iterator[list[tuple[int, UnitTensor]]]:
    """Tensors of one file that lie close enough together to be read as one."""
    run: list[tuple[int, UnitTensor]] = []
    reached = 0
    for entry in sorted(tensors, key=lambda entry: (entry[1].stored.path, entry[1].stored.begin)):
        stored = entry[1].stored
        if run and (stored.path != run[0][1].stored.path or stored.begin > reached + GAP):
            yield run
            run = []
        reached = max(reached if run else 0, stored.begin + stored.size)
        run.append(entry)
    if run:
        yield run


def _reads(path: str, begin: int, stop: int, position: int) -> Iterator[Piece]:
    for offset in range(begin, stop, PIECE):
        yield Piece(path, offset, min(PIECE, stop - offset), position + offset - begin)


def _casts(tensor: UnitTensor, position: int) -> Iterator[Piece]:
    stored = tensor.stored
    width, elements = stored.dtype.itemsize, stored.size // stored.dtype.itemsize
    step = (PIECE - 2 * PAGE) // width
    for first in range(0, elements, step):
        count = min(step, elements - first)
        at = stored.begin + first * width
        begin, stop = _pages(at, at + count * width)
        cast = Cast(at - begin, count, stored.dtype, tensor.dtype)
        yield Piece(stored.path, begin, stop - begin, position + first * tensor.dtype.itemsize, cast)


def _pages(begin: int, stop: int) -> tuple[int, int]:
    """The same range widened to whole pages."""
    return begin // PAGE * PAGE, -(-stop // PAGE) * PAGE
