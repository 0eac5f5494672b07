"""What each decoder layer keeps of the tokens it has seen: keys and values, latents, or a constant state."""

from __future__ import annotations

from layerlight.core.inspecting.layer_types import CHUNKED, FULL, HYBRID, LINEAR, NOTHING, SLIDING
from layerlight.core.model import DTYPE_SIZES, TextShape
from layerlight.core.plan import PREFILL_CHUNK

FP8 = "fp8"
CACHE_BITS = {"int8": 8, FP8: 8, "int4": 4, "int2": 2}
"""Bits an element in transformers' QuantizedCache, which takes full attention only. Plans offer fp8, which needs torch
alone; the integers need hqq or, below 8 bits, optimum-quanto, and nothing prices what turning them back costs."""

_GROUP = 64
"""Elements that share a scale and a zero point, where the cache holds integers."""
_FRESH_TOKENS = 127
"""Newest tokens that a cache of integers keeps as they are: with one more all of it is packed again."""
_FP8_SCALES = 8
"""Bytes of a layer's two scales in fp8, one for all keys and one for all values."""


def kv_bytes(
    shape: TextShape,
    index: int,
    context: int,
    dtype: str,
    batch: int = 1,
    cache: str | None = None,
    chunk: int = PREFILL_CHUNK,
) -> int:
    """Most bytes that decoder layer `index` keeps of up to `context` tokens, read in chunks of `chunk`.

    A layer with a window keeps `window - 1` tokens, but as a part of the tensor that it made them in, which also
    holds the chunk before it. `cache` quantises keys and values (one of `CACHE_BITS`), never a constant state.
    """
    kind = layer_type(shape, index)
    width = DTYPE_SIZES[dtype]
    kept = state_bytes(shape, dtype) if kind in (LINEAR, HYBRID) else 0
    if kind in (LINEAR, NOTHING):
        return batch * kept
    tokens = tokens_held(context, window_of(shape, kind), chunk)
    return batch * (kept + _token_bytes(elements_per_token(shape, kind), tokens, width, cache))


def packed_bytes(size: int, dtype: str) -> int:
    """Bytes in fp8 of what takes `size` bytes of one layer's keys and values in `dtype`."""
    return size // DTYPE_SIZES[dtype] + _FP8_SCALES


def turned_back_bytes(shape: TextShape, index: int, context: int, dtype: str, batch: int = 1) -> int:
    """Most bytes that live beside an fp8 cache while layer `index` turns its keys and values back to `dtype`.

    The packed ones from before the token stay until both are back; attention then computes with those in `dtype`, one
    layer at a time.
    """
    elements = batch * context * elements_per_token(shape, layer_type(shape, index))
    return elements + elements * DTYPE_SIZES[dtype]


def layer_type(shape: TextShape, index: int) -> str:
    return shape.layer_types[index] if index < len(shape.layer_types) else FULL


def window_of(shape: TextShape, kind: str) -> int | None:
    return shape.sliding_window if kind in (SLIDING, CHUNKED) else None


def elements_per_token(shape: TextShape, kind: str) -> int:
    """Elements that a layer of this type keeps of one token."""
    if shape.latent_rank is not None:
        return shape.latent_rank + (shape.latent_rope_dim or 0) + (shape.index_dim or 0)
    return 2 * key_value_heads(shape, kind) * head_dim(shape, kind)


def key_value_heads(shape: TextShape, kind: str) -> int:
    return (shape.full_key_value_heads if kind == FULL else None) or shape.key_value_heads


def head_dim(shape: TextShape, kind: str) -> int:
    return (shape.full_head_dim if kind == FULL else None) or shape.head_dim


def tokens_held(context: int, window: int | None, chunk: int) -> int:
    """Most tokens whose keys lie in memory for one layer at any time up to `context`."""
    if window is None or context <= chunk:
        return context
    return max(chunk, min(context, window - 1 + min(chunk, context - chunk)), min(context, window))


def state_bytes(shape: TextShape, dtype: str) -> int:
    """Bytes of a linear layer's constant state: the convolution's in `dtype`, the recurrence's in float32."""
    if shape.linear is None:
        return 0
    return shape.linear.convolution * DTYPE_SIZES[dtype] + 4 * shape.linear.recurrence


def _token_bytes(elements: int, tokens: int, width: int, cache: str | None) -> int:
    if cache is None:
        return elements * tokens * width
    if cache == FP8:
        return elements * tokens + _FP8_SCALES
    fresh = min(tokens, _FRESH_TOKENS)
    packed = elements * (tokens - fresh)
    return elements * fresh * width + -(-packed * CACHE_BITS[cache] // 8) + 2 * width * -(-packed // _GROUP)
