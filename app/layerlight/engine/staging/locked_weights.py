"""Weights that rest in RAM, page-locked so that a device copies them by itself: as many as may be."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from layerlight.core.device import format_size
from layerlight.engine.staging.device_layout import HeldTensor, packed
from layerlight.engine.staging.pinned_buffer import PinnedBuffer

log = logging.getLogger(__name__)


class LockedWeights:
    """Takes layers' weights into page-locked memory, one layer after another, until `room` bytes are."""

    def __init__(self, device: torch.device, room: int) -> None:
        self._device, self._room = device, room
        self._buffers: list[PinnedBuffer] = []
        self._known: dict[tuple[int, int], HeldTensor] = {}
        """By address and size: weights that two layers share are locked once."""
        self.left_out = 0
        """Bytes that stay in ordinary memory."""

    @property
    def size(self) -> int:
        """Bytes locked."""
        return sum(each.size for each in self._buffers)

    def hold(self, weights: Sequence[torch.Tensor]) -> list[HeldTensor]:
        """One layer's weights, contiguous and in RAM: locked copies, or where there is no room they themselves."""
        new = {_key(each): each for each in weights if _key(each) not in self._known}
        positions, end = packed([each.nbytes for each in new.values()])
        buffer = self._locked(end) if new else None
        for (key, each), position in zip(new.items(), positions, strict=True):
            self._known[key] = _held(each) if buffer is None else _copied(each, buffer, position)
        return [self._known[_key(each)] for each in weights]

    def close(self) -> None:
        """Unlocks all of it; no copy may be under way."""
        while self._buffers:
            self._buffers.pop().close()

    def _locked(self, size: int) -> PinnedBuffer | None:
        buffer = PinnedBuffer(size, self._device) if size <= self._room else None
        if buffer is None or not buffer.pinned:
            if not self.left_out:
                log.warning(
                    "no more than %s of the weights in RAM are page-locked: the others pass through a little memory "
                    "that is, which takes longer",
                    format_size(self.size),
                )
            self._room = 0
            self.left_out += size
            return None
        self._room -= buffer.size
        self._buffers.append(buffer)
        return buffer


def _key(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes


def _held(tensor: torch.Tensor) -> HeldTensor:
    raw = tensor.detach().reshape(-1).view(torch.uint8)
    return HeldTensor(raw, 0, tensor.nbytes, tensor.dtype, tuple(tensor.shape))


def _copied(tensor: torch.Tensor, buffer: PinnedBuffer, position: int) -> HeldTensor:
    held = HeldTensor(buffer.tensor, position, tensor.nbytes, tensor.dtype, tuple(tensor.shape), pinned=True)
    buffer.tensor[position : position + held.size].copy_(_held(tensor).source)
    return held
