"""A buffer of the ring, what is in it, and its permanent views."""

from __future__ import annotations

from enum import Enum, auto

import torch

from layerlight.engine.ring.landing import Buffer
from layerlight.engine.ring.page_buffer import PageBuffer
from layerlight.engine.ring.unit_layout import Layout, View


class SlotState(Enum):
    FREE = auto()
    FILLING = auto()
    READY = auto()
    """Whole, or not: then there is `trouble`."""
    HELD = auto()
    """A pass computes with it."""
    LEAVING = auto()
    """No longer wanted; a read into it is not over yet."""


class Slot:
    """One buffer. All but `views` is touched under the ring's lock only."""

    def __init__(self, size: int, kind: int, buffer: Buffer | None = None) -> None:
        """`kind`: units of the same kind take turns in it. Without a `buffer` it has one of `size` bytes in RAM."""
        self.buffer: Buffer = PageBuffer(size) if buffer is None else buffer
        self.kind = kind
        self.state = SlotState.FREE
        self.unit = -1
        self.fill = 0
        """Which filling this is: reads for one that was given up go nowhere."""
        self.left = 0
        """Pieces that are not there yet."""
        self.reading = 0
        """Reads that are under way."""
        self.trouble: Exception | None = None
        self._views: dict[tuple[View, ...], tuple[torch.nn.Parameter, ...]] = {}

    def prepare(self, layout: Layout) -> None:
        """Makes the views for this layout; units of the same layout share them."""
        if layout.views not in self._views:
            self._views[layout.views] = tuple(self._parameter(view) for view in layout.views)

    def views(self, layout: Layout) -> tuple[torch.nn.Parameter, ...]:
        """The same objects for as long as the ring lasts."""
        return self._views[layout.views]

    def _parameter(self, view: View) -> torch.nn.Parameter:
        elements = 1
        for length in view.shape:
            elements *= length
        raw = self.buffer.tensor[view.position : view.position + elements * view.dtype.itemsize]
        # as from_pretrained leaves them: backends that registered themselves run some operators only on such weights
        wants = raw.device.type != "cpu" and view.dtype.is_floating_point
        return torch.nn.Parameter(raw.view(view.dtype).view(view.shape), requires_grad=wants)
