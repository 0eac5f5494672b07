"""Page-locked memory: a device copies from it by itself, at the full speed of the bus."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

import torch

from layerlight.engine.ring.page_buffer import PAGE, PageBuffer

log = logging.getLogger(__name__)

_SUCCESS = 0


class PinnedBuffer:
    """`size` bytes, page-aligned and locked where the system lets the device's driver do that; else ordinary ones."""

    def __init__(self, size: int, device: torch.device) -> None:
        """Raises MemoryError or OSError when there is no such memory, locked or not."""
        self.pinned = False
        self.tensor: torch.Tensor
        """The bytes, for copies."""
        self.bytes: memoryview
        """The same, for reads."""
        self._registered: int | None = None
        self._memory: Any = None
        if device.type == "cuda":
            self._register(size)
        else:
            self._ask_torch(size)

    @property
    def size(self) -> int:
        return len(self.bytes)

    def close(self) -> None:
        """Unlocks it. No copy may be under way."""
        if self._registered is not None:
            _driver().cudaHostUnregister(self._registered)
            self._registered = None

    def _register(self, size: int) -> None:
        """torch's own allocator would round each up to a power of two, and never give it back."""
        self._memory = PageBuffer(size)
        self.tensor, self.bytes = self._memory.tensor, self._memory.bytes
        address = self.tensor.data_ptr()
        try:
            answer = int(_driver().cudaHostRegister(address, self._memory.size, 0))
        except RuntimeError as error:
            log.warning("%d bytes of RAM can't be page-locked: %s", size, error)
            return
        if answer == _SUCCESS:
            self.pinned, self._registered = True, address
        else:
            log.warning("%d bytes of RAM can't be page-locked: the driver answers %d", size, answer)

    def _ask_torch(self, size: int) -> None:
        length = max(PAGE, -(-size // PAGE) * PAGE)
        try:
            whole = torch.empty(length + PAGE, dtype=torch.uint8, pin_memory=True)
        except (RuntimeError, NotImplementedError) as error:
            log.warning("%d bytes of RAM can't be page-locked: %s", size, error)
            self._memory = PageBuffer(size)
            self.tensor, self.bytes = self._memory.tensor, self._memory.bytes
            return
        begin = -whole.data_ptr() % PAGE
        self._memory, self.pinned = whole, True
        self.tensor = whole[begin : begin + length]
        self.bytes = memoryview((ctypes.c_char * length).from_address(self.tensor.data_ptr())).cast("B")


def _driver() -> Any:
    """CUDA's runtime, ROCm's under the same name."""
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
