"""One layer's KV cache in float8: the library's own, with exact scales, and able to be cut back."""

from __future__ import annotations

import torch
from transformers.cache_utils import Fp8QuantizedLayer

from layerlight.engine.fp8 import pack, scale_of, turn_back


class Fp8Layer(Fp8QuantizedLayer):  # type: ignore[misc]
    """Differs from its class in how states are rounded and turned back: see `fp8`."""

    is_croppable = True
    cumulative_length: int

    def _quantize(self, tensor: torch.Tensor, scale: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        scale = scale_of(tensor) if scale is None else scale
        return pack(tensor, scale), scale

    def _dequantize(self, qtensor: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        packed, scale = qtensor
        return turn_back(packed, scale, self.keys.dtype)

    def crop(self, tokens_to_remove: int) -> None:
        """Takes so many tokens off its end; the number is negative, as in all layers of the library."""
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        self.cumulative_length = max(0, self.cumulative_length - abs(tokens_to_remove))
        for name in ("_quantized_keys", "_quantized_values"):
            packed, scale = getattr(self, name)
            setattr(self, name, (packed[..., : self.cumulative_length, :], scale))
