"""How a unit's weights lie in a device's buffer, and which bytes of RAM or of a file's piece go where in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from layerlight.engine.ring.unit_layout import PIECE, Cast, Piece, UnitTensor, View, layout_of

ALIGNMENT = 256
"""Bytes between which device kernels like weights to begin."""
RUN = 8 * PIECE
"""Bytes of page-locked memory copied at once at most."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """`size` bytes from `begin` of a source to `position` of the device's buffer."""

    begin: int
    position: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class StagedPiece:
    """What is brought at once: a piece of a file, read beside the buffer first, or `held` bytes of RAM."""

    crossings: tuple[Crossing, ...]
    read: Piece | None = None
    held: torch.Tensor | None = None
    pinned: bool = False
    """Whether the device may copy from `held` by itself."""

    @property
    def landed(self) -> int:
        """Bytes that it takes in RAM on its way."""
        if self.read is not None:
            return _landed(self.read)
        return 0 if self.pinned or self.held is None else self.held.numel()

    @property
    def cast(self) -> Cast | None:
        return self.read.cast if self.read is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLayout:
    """`size` bytes of a device's buffer, filled by `pieces`; what is copied is exactly the weights' bytes."""

    size: int
    views: tuple[View, ...]
    pieces: tuple[StagedPiece, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.read.path for piece in self.pieces if piece.read is not None))


@dataclass(frozen=True, slots=True, eq=False)
class HeldTensor:
    """A weight in RAM: `size` bytes from `begin` of `source`, which are page-locked or not."""

    source: torch.Tensor
    begin: int
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    pinned: bool = False


def packed(sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """(positions one after another, each aligned for a device; the end of the last)."""
    positions, end = [], 0
    for size in sizes:
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        positions.append(begin)
        end = begin + size
    return tuple(positions), end


def layout_from_files(tensors: Sequence[UnitTensor]) -> DeviceLayout:
    """Of weights in files: in their order there, so that what is read together is copied together."""
    host = layout_of(tensors)
    order = sorted(range(len(tensors)), key=lambda number: host.views[number].position)
    sizes = [_size(host.views[number]) for number in order]
    positions, end = packed(sizes)
    views: dict[int, View] = {}
    spans = []
    for number, position, size in zip(order, positions, sizes, strict=True):
        views[number] = replace(host.views[number], position=position)
        spans.append(Crossing(host.views[number].position, position, size))
    pieces = tuple(
        StagedPiece(crossings, replace(piece, position=0))
        for piece in host.pieces
        if (crossings := tuple(_joined(_inside(spans, piece.position, piece.position + _landed(piece)))))
    )
    return DeviceLayout(end, tuple(views[number] for number in range(len(tensors))), pieces)


def layout_from_ram(tensors: Sequence[HeldTensor]) -> DeviceLayout:
    """Of weights in RAM: neighbours in one source are copied as one."""
    positions, end = packed([each.size for each in tensors])
    views = tuple(View(at, each.dtype, each.shape) for at, each in zip(positions, tensors, strict=True))
    pieces = []
    for source, pinned, run in _runs(tensors, positions):
        step = RUN if pinned else PIECE
        for first in range(0, run.size, step):
            size = min(step, run.size - first)
            held = source[run.begin + first : run.begin + first + size]
            pieces.append(StagedPiece((Crossing(0, run.position + first, size),), held=held, pinned=pinned))
    return DeviceLayout(end, views, tuple(pieces))


def _runs(tensors: Sequence[HeldTensor], positions: Sequence[int]) -> Iterator[tuple[torch.Tensor, bool, Crossing]]:
    """(source, whether it is page-locked, what of it is copied as one)."""
    source: torch.Tensor | None = None
    pinned, run = False, Crossing(0, 0, 0)
    for each, position in zip(tensors, positions, strict=True):
        if each.source is source and _follows(run, each.begin, position):
            run = replace(run, size=run.size + each.size)
            continue
        if source is not None:
            yield source, pinned, run
        source, pinned, run = each.source, each.pinned, Crossing(each.begin, position, each.size)
    if source is not None:
        yield source, pinned, run


def _inside(spans: Sequence[Crossing], begin: int, end: int) -> Iterator[Crossing]:
    """Parts of the spans between these bytes, counted from the first of them."""
    for span in spans[max(0, bisect_right(spans, begin, key=lambda each: each.begin) - 1) :]:
        if span.begin >= end:
            return
        first, last = max(span.begin, begin), min(span.begin + span.size, end)
        if first < last:
            yield Crossing(first - begin, span.position + first - span.begin, last - first)


def _joined(crossings: Iterator[Crossing]) -> Iterator[Crossing]:
    run: Crossing | None = None
    for each in crossings:
        if run is not None and _follows(run, each.begin, each.position):
            run = replace(run, size=run.size + each.size)
            continue
        if run is not None:
            yield run
        run = each
    if run is not None:
        yield run


def _follows(run: Crossing, begin: int, position: int) -> bool:
    return (run.begin + run.size, run.position + run.size) == (begin, position)


def _landed(piece: Piece) -> int:
    return piece.length if piece.cast is None else piece.cast.count * piece.cast.dtype.itemsize


def _size(view: View) -> int:
    elements = 1
    for length in view.shape:
        elements *= length
    return elements * view.dtype.itemsize
