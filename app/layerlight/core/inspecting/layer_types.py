"""config.json → the type of each decoder layer, which decides what it keeps of the tokens it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerlight.core.inspecting.config_defaults import ConfigDefaults
from layerlight.core.inspecting.figures import first_figure

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
HYBRID = "hybrid"
"""Attention and a linear layer side by side."""
NOTHING = "dummy"
"""Keeps nothing: it borrows another layer's cache, or has no attention (the library's own word)."""

_PATTERNS = {
    "gemma2": 2, "vaultgemma": 2, "gpt_oss": 2, "gemma3_text": 6, "gemma3": 6, "gemma3n_text": 5, "gemma3n": 5,
    "gemma4_text": 6, "gemma4": 6, "cohere2": 4, "cohere2_moe": 4, "exaone4": 4, "olmo3": 4, "afmoe": 4,
}  # fmt: skip
"""Every n-th layer attends to all, the others to a window, where the config does not list its layers."""

_CALLED = {
    "attention": FULL, "global": FULL, "local": SLIDING, "mamba": LINEAR, "conv": LINEAR, "recurrent": LINEAR,
    "moe": NOTHING, "mlp": NOTHING, "indexed_attention": FULL, "M": LINEAR, "*": FULL, "E": NOTHING, "-": NOTHING,
}  # fmt: skip
_LISTED = ("layer_types", "layers_block_type")

_SHARING = {"gemma3n_text": 15, "gemma3n": 15, "gemma4_text": 0, "gemma4": 0}
"""Layers at the end that use another layer's cache, where the config does not say."""


def layer_types(
    text: Mapping[str, Any], model_type: str, layers: int, defaults: ConfigDefaults | None
) -> tuple[tuple[str, ...], int | None]:
    """(type per layer, window in tokens); no types when all layers attend to everything."""
    window = _window(text, model_type, defaults)
    chunk = first_figure(text, ("attention_chunk_size",), 8192 if model_type.startswith("llama4") else None)
    types = _listed(text, layers) or _derived(text, model_type, layers, window, chunk)
    shared = first_figure(text, ("num_kv_shared_layers",), _SHARING.get(model_type)) or 0
    if shared and model_type in _SHARING:
        types = (types or (FULL,) * layers)[: max(0, layers - shared)] + (NOTHING,) * min(shared, layers)
    if set(types) == {FULL}:
        return (), None
    return types, chunk if CHUNKED in types else window


def _window(text: Mapping[str, Any], model_type: str, defaults: ConfigDefaults | None) -> int | None:
    window = first_figure(text, ("sliding_window", "sliding_window_size", "attention_window_size"), None)
    if window is None and "sliding_window" not in text and defaults:
        window = defaults.sliding_window
    if text.get("use_sliding_window") is False or (
        "use_sliding_window" not in text and model_type.startswith(("qwen2", "qwen3", "smollm3"))
    ):
        return None
    return window or None


def _listed(text: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """What the config says itself; empty where it does not."""
    for name in _LISTED:
        listed = text.get(name)
        if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed):
            return tuple(_CALLED.get(str(each), str(each)) for each in listed)[:layers]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= set("ME*-"):
        return tuple(_CALLED[each] for each in pattern)[:layers]
    return ()


def _derived(
    text: Mapping[str, Any], model_type: str, layers: int, window: int | None, chunk: int | None
) -> tuple[str, ...]:
    if hybrid := _hybrid(text, model_type, layers):
        return hybrid
    if model_type.startswith("llama4"):
        every = first_figure(text, ("no_rope_layer_interval",), 4) or 4
        return tuple(CHUNKED if (i + 1) % every else FULL for i in range(layers)) if chunk else ()
    if not window:
        return ()
    if model_type.startswith(("qwen2", "qwen3")):
        first = first_figure(text, ("max_window_layers",), 28) or 0
        return tuple(SLIDING if i >= first else FULL for i in range(layers))
    every = first_figure(text, ("sliding_window_pattern", "_sliding_window_pattern"), _PATTERNS.get(model_type)) or 0
    if every > 1:
        types = [SLIDING if (i + 1) % every else FULL for i in range(layers)]
        if model_type.startswith("gemma4"):
            types[-1] = FULL
        return tuple(types)
    return (SLIDING,) * layers


def _hybrid(text: Mapping[str, Any], model_type: str, layers: int) -> tuple[str, ...]:
    """Of types that mix attention with linear layers, where the config does not list its layers."""
    indices = range(layers)
    if model_type in ("mamba", "mamba2", "falcon_mamba", "granitemoehybrid"):
        return (LINEAR,) * layers
    if model_type == "falcon_h1":
        return (HYBRID,) * layers
    if model_type.startswith(("qwen3_next", "qwen3_5", "olmo_hybrid")):
        every = first_figure(text, ("full_attention_interval",), 4) or 4
        types = tuple(LINEAR if (i + 1) % every else FULL for i in indices)
        return (*types[:-1], FULL) if model_type == "olmo_hybrid" and FULL not in types else types
    if model_type == "jamba":
        period, offset = (
            first_figure(text, ("attn_layer_period",), 8) or 1,
            first_figure(text, ("attn_layer_offset",), 4),
        )
        return tuple(FULL if i % period == offset else LINEAR for i in indices)
    if model_type == "zamba":
        period, offset = (
            first_figure(text, ("attn_layer_period",), 6) or 1,
            first_figure(text, ("attn_layer_offset",), 4),
        )
        later = (HYBRID if i % period == offset else LINEAR for i in range(layers - 3))
        return (LINEAR, LINEAR, HYBRID, *later)[:layers]
    if model_type == "bamba":
        return tuple(FULL if i in _indices(text, "attn_layer_indices") else LINEAR for i in indices)
    if model_type in ("lfm2", "lfm2_moe") and "full_attn_idxs" in text:
        return tuple(FULL if i in _indices(text, "full_attn_idxs") else LINEAR for i in indices)
    if model_type == "minimax":
        return tuple(LINEAR if i % 2 else FULL for i in indices)
    return ()


def _indices(text: Mapping[str, Any], name: str) -> frozenset[int]:
    found = text.get(name)
    return frozenset(each for each in found if isinstance(each, int)) if isinstance(found, list) else frozenset()
