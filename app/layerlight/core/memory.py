"""Bytes: weights as they will be loaded, KV cache, working memory, and the margin that stays free."""

from __future__ import annotations

from layerlight.core.device import Device
from layerlight.core.kv_cache import kv_bytes
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, Layer, LayerKind, Tensor
from layerlight.core.working_memory import working_bytes

__all__ = [
    "MIB", "QUANTIZATIONS", "kv_bytes", "loaded_size", "loaded_tensor_size", "margin", "quantizable", "working_bytes",
]  # fmt: skip

QUANTIZATIONS = ("nf4", "fp4", "int8")
"""What bitsandbytes can do while loading."""

FOUR_BIT_BLOCK = 64
"""Elements that share one fp32 absmax in bitsandbytes' 4-bit formats (its default block size)."""

MIB = 2**20


def loaded_size(layer: Layer, dtype: str, quantization: str | None = None) -> int:
    """Bytes of a layer's weights once loaded in `dtype`, quantised by bitsandbytes where that would happen."""
    return sum(loaded_tensor_size(tensor, layer, dtype, quantization) for tensor in layer.tensors)


def loaded_tensor_size(tensor: Tensor, layer: Layer, dtype: str, quantization: str | None) -> int:
    """Bytes of one tensor once loaded. Tensors that are no floats keep their size, as in the file."""
    if tensor.dtype not in FLOAT_DTYPES:
        return tensor.size
    if quantization and quantizable(tensor, layer):
        if quantization == "int8":
            return tensor.elements + 4 * tensor.shape[0]
        blocks = -(-tensor.elements // FOUR_BIT_BLOCK)
        return -(-tensor.elements // 2) + 4 * blocks
    return tensor.elements * DTYPE_SIZES[dtype]


def quantizable(tensor: Tensor, layer: Layer) -> bool:
    """Whether bitsandbytes would quantise it: a linear weight of a decoder layer that is neither expert nor router.

    transformers fuses experts into three-dimensional parameters and keeps routers as plain parameters; both stay as
    they are. The output head and embeddings are skipped by default.
    """
    if layer.kind is not LayerKind.DECODER or len(tensor.shape) != 2 or not tensor.name.endswith(".weight"):
        return False
    inner = tensor.name.rpartition(".")[0]
    expert = ".experts." in tensor.name
    router = inner.endswith((".gate", ".router"))
    return not expert and not router


def margin(device: Device) -> int:
    """Bytes that stay free on a device, so that what can't be foreseen does not end in an error.

    A twentieth of what is free, at most 512 MiB on an accelerator and 1 GiB of RAM; nothing on disk.
    """
    if device.kind == "disk" or device.free is None:
        return 0
    return min(device.free // 20, (512 if device.is_accelerator else 1024) * MIB)
