"""Bytes: weights as they will be loaded, KV cache, working memory, and the margin that stays free."""

from __future__ import annotations

from layerlight.core.device import Device
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, Layer, LayerKind, Tensor, TextShape

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


def kv_bytes(shape: TextShape, index: int, context: int, dtype: str, batch: int = 1) -> int:
    """Bytes of decoder layer `index`'s KV cache when it holds `context` tokens.

    Sliding layers hold at most their window; latent attention holds the compressed vectors. Linear and state-space
    layers hold a constant state that is not larger than what full attention would hold, which is what is counted
    until the empty model has been asked.
    """
    length = context
    kind = shape.layer_types[index] if index < len(shape.layer_types) else "full_attention"
    if kind in ("sliding_attention", "chunked_attention") and shape.sliding_window:
        length = min(context, shape.sliding_window)
    if shape.latent_rank is not None:
        per_token = shape.latent_rank + (shape.latent_rope_dim or 0)
    else:
        per_token = 2 * shape.key_value_heads * shape.head_dim
    return batch * length * per_token * DTYPE_SIZES[dtype]


def working_bytes(shape: TextShape, context: int, dtype: str, attention: str, chunk: int) -> int:
    """Bytes that one pass needs beside weights and cache, at its largest: a prefill chunk at the end of the context.

    The largest of attention and MLP, with the residual stream, the KV cache's own growth (the old and the new
    tensor of one layer live side by side while it grows), and the logits in `dtype` and in float32.
    """
    width = DTYPE_SIZES[dtype]
    tokens = max(1, min(chunk, context))
    stream = 4 * tokens * shape.hidden_size * width
    projections = tokens * (2 * shape.heads + 2 * shape.key_value_heads) * shape.head_dim * width
    repeated = 2 * context * shape.heads * shape.head_dim * width if shape.heads != shape.key_value_heads else 0
    mask = tokens * context * (width + 1)
    scores = shape.heads * tokens * context
    match attention:
        case "eager":
            seen = scores * (width + 8)
        case _:
            seen = 0
    growth = 4 * context * shape.key_value_heads * shape.head_dim * width
    mlp = 3 * tokens * shape.intermediate_size * width
    logits = shape.vocabulary * (width + 3 * 4)
    return stream + max(projections + repeated + mask + seen + growth, mlp) + logits


def margin(device: Device) -> int:
    """Bytes that stay free on a device, so that what can't be foreseen does not end in an error.

    A twentieth of what is free, at most 512 MiB on an accelerator and 1 GiB of RAM; nothing on disk.
    """
    if device.kind == "disk" or device.free is None:
        return 0
    return min(device.free // 20, (512 if device.is_accelerator else 1024) * MIB)
