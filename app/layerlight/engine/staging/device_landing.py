"""A ring's buffers on a device, and the readers that bring pieces there through a little page-locked memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from layerlight.engine.ring.piece_reading import PieceReader
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.staging.device_layout import DeviceLayout, StagedPiece
from layerlight.engine.staging.lanes import Lane, Lanes
from layerlight.engine.staging.pinned_buffer import PinnedBuffer


class DeviceBuffer:
    """`size` bytes of a device. What is copied there waits for the end of what computed with it last."""

    def __init__(self, size: int, device: torch.device, lanes: Lanes) -> None:
        """Raises torch.OutOfMemoryError."""
        self.tensor = torch.empty(size, dtype=torch.uint8, device=device)
        self.size = size
        self._lanes = lanes
        self.left: Any = lanes.mark()
        """The end of what computed with it; of its memory's former use at first."""

    def leave(self) -> None:
        """A pass that computes with it has been handed to the device; the calling thread's next work is not its own."""
        self.left = self._lanes.mark()

    def holds(self, address: int) -> bool:
        """Whether this address lies in it."""
        return 0 <= address - self.tensor.data_ptr() < self.size


class DeviceLanding:
    """Units come to lie on a device."""

    def __init__(self, device: torch.device, lanes: Lanes, layouts: Sequence[DeviceLayout]) -> None:
        """`layouts`: what will be brought."""
        self._device, self._lanes = device, lanes
        pieces = [piece for layout in layouts for piece in layout.pieces]
        self._casts = any(piece.cast for piece in pieces)
        self._beside = max((piece.landed for piece in pieces), default=0)
        self.passages: list[PinnedBuffer] = []
        """Memory that pieces pass through, one for each reader."""

    @property
    def pinned(self) -> bool:
        """Whether the device copies from all of it by itself."""
        return all(each.pinned for each in self.passages)

    def buffer(self, size: int) -> DeviceBuffer:
        return DeviceBuffer(size, self._device, self._lanes)

    def reader(self, files: Mapping[str, SourceFile]) -> CrossingReader:
        passage = None
        if self._beside:
            passage = PinnedBuffer(self._beside, self._device)
            self.passages.append(passage)
        return CrossingReader(PieceReader(files, casts=self._casts), self._lanes.lane(), passage)

    def close(self) -> None:
        """Unlocks the memory; no reader may be at work."""
        while self.passages:
            self.passages.pop().close()


class CrossingReader:
    """Brings pieces to the device for one thread, each before the next."""

    def __init__(self, files: PieceReader, lane: Lane, passage: PinnedBuffer | None) -> None:
        self._files, self._lane, self._passage = files, lane, passage

    def read(self, piece: StagedPiece, into: DeviceBuffer) -> None:
        """Raises OSError when a file can't be read, RuntimeError when the device refuses the copy."""
        source = self._source(piece)
        with self._lane.after(into.left):
            for each in piece.crossings:
                target = into.tensor[each.position : each.position + each.size]
                target.copy_(source[each.begin : each.begin + each.size], non_blocking=True)
        self._lane.finish()

    def _source(self, piece: StagedPiece) -> torch.Tensor:
        """Its bytes in RAM; through the passage what the device can't copy from by itself."""
        passage = self._passage
        if passage is not None and piece.read is not None:
            self._files.read(piece.read, passage)
            return passage.tensor
        held = piece.held
        if held is None:
            raise RuntimeError("A piece of a layer has no source.")
        if piece.pinned or passage is None or not passage.pinned:
            return held
        # torch's own copy would keep the interpreter or take threads of its own for each of ours
        ctypes.memmove(passage.tensor.data_ptr(), held.data_ptr(), held.numel())
        return passage.tensor
