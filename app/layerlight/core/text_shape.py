"""config.json → TextShape: the numbers that decide KV cache and working memory, as transformers understands them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerlight.core.config_defaults import ConfigDefaults, config_defaults
from layerlight.core.config_file import ConfigFile
from layerlight.core.model import TextShape

MOST_LAYERS = 10_000
LARGEST_FIGURE = 2**40
"""More than any model has: a config that says more is damaged, and is not believed."""

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "moe_intermediate_size")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
_KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "context_length", "model_max_length")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")

_NO_ATTENTION = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})
_UNLIMITED = frozenset({"bloom", "mpt", "mamba", "mamba2", "falcon_mamba", "xlstm", "rwkv", "recurrent_gemma"})
"""Model types whose positions have no end: a length in their config is only what they were trained with."""

_PATTERNS = {
    "gemma2": 2, "vaultgemma": 2, "gpt_oss": 2, "gemma3_text": 6, "gemma3": 6, "gemma3n_text": 5, "gemma3n": 5,
    "gemma4_text": 6, "gemma4": 6, "cohere2": 4, "cohere2_moe": 4, "exaone4": 4, "olmo3": 4, "afmoe": 4,
}  # fmt: skip
"""Every n-th layer attends to all, the others to a window, where the config does not list its layers."""

_CALLED = {"attention": "full_attention", "global": "full_attention", "local": "sliding_attention", "mamba": "mamba"}


def text_shape(config: ConfigFile) -> TextShape | None:
    """The shape of the language model; None where the config does not describe one."""
    text = config.text
    nested = text is not config.content
    model_type = _word(text, "model_type") or config.model_type
    defaults = config_defaults(model_type) or config_defaults(config.model_type)
    hidden = _first(text, _HIDDEN, defaults.hidden_size if defaults else None)
    layers = _first(text, _LAYERS, defaults.layers if defaults else None)
    vocabulary = _first(text, ("vocab_size", "n_words"), None) or (
        _first(config.content, ("vocab_size",), defaults.vocabulary if defaults else None)
        if nested or defaults
        else None
    )
    if not hidden or not layers or layers > MOST_LAYERS or vocabulary is None:
        return None
    heads = _first(text, _HEADS, defaults.heads if defaults else None) or 0
    sliding, window = _layer_types(text, model_type, layers, defaults)
    return TextShape(
        model_type,
        hidden,
        _first(text, _INTERMEDIATE, _default_intermediate(text, hidden, defaults)) or 4 * hidden,
        layers,
        heads,
        0 if model_type in _NO_ATTENTION else _key_value_heads(text, model_type, heads, defaults),
        _head_dim(text, hidden, heads, defaults),
        vocabulary,
        _context_length(text, model_type, defaults),
        sliding,
        window,
        _first(text, ("kv_lora_rank",), None),
        _first(text, ("qk_rope_head_dim",), None),
        _first(text, _EXPERTS, None) or None,
        _first(text, _EXPERTS_PER_TOKEN, None) or None,
    )


def tied_embeddings(config: ConfigFile) -> bool:
    """Whether the output head shares the embedding's weights: said by the config, else its type's default.

    transformers asks the outermost config only.
    """
    said = config.content.get("tie_word_embeddings")
    if isinstance(said, bool):
        return said
    defaults = config_defaults(config.model_type)
    return bool(defaults and defaults.tied)


def decoder_layers(config: ConfigFile) -> int | None:
    """How many decoder layers the config promises."""
    shape = text_shape(config)
    return shape.layers if shape else None


def _key_value_heads(text: Mapping[str, Any], model_type: str, heads: int, defaults: ConfigDefaults | None) -> int:
    attention = text.get("attn_config")
    if isinstance(attention, dict) and (found := _first(attention, ("kv_n_heads",), None)):
        return found
    if model_type == "falcon" and not text.get("new_decoder_architecture"):
        return 1 if text.get("multi_query", True) else heads
    if model_type == "gpt_bigcode":
        return 1 if text.get("multi_query", True) else heads
    if "num_attention_heads" in text and "num_key_value_heads" in text and text["num_key_value_heads"] is None:
        return heads
    return _first(text, _KEY_VALUE_HEADS, defaults.key_value_heads if defaults else None) or heads


def _head_dim(text: Mapping[str, Any], hidden: int, heads: int, defaults: ConfigDefaults | None) -> int:
    found = _first(text, _HEAD_DIM, defaults.head_dim if defaults else None)
    return found or (hidden // heads if heads else 0)


def _default_intermediate(text: Mapping[str, Any], hidden: int, defaults: ConfigDefaults | None) -> int:
    ratio = _first(text, ("expansion_ratio",), None)
    if ratio:
        return ratio * hidden
    return (defaults.intermediate_size if defaults else None) or 4 * hidden


def _context_length(text: Mapping[str, Any], model_type: str, defaults: ConfigDefaults | None) -> int | None:
    """Positions the model was made for. YaRN stretches them by its factor unless the config counts that already."""
    if model_type in _UNLIMITED:
        return None
    length = _first(text, _CONTEXT, None) or (defaults.context_length if defaults else None)
    if not length:
        return None
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    if isinstance(rope, dict) and "yarn" in (rope.get("rope_type"), rope.get("type")):
        original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if isinstance(original, int) and isinstance(factor, int | float) and 1 <= factor <= 1000:
            return max(length, int(original * factor))
    return length


def _layer_types(
    text: Mapping[str, Any], model_type: str, layers: int, defaults: ConfigDefaults | None
) -> tuple[tuple[str, ...], int | None]:
    """(type per layer, window); no types when all layers attend to everything."""
    window = _first(text, ("sliding_window", "sliding_window_size", "attention_window_size"), None)
    if window is None and "sliding_window" not in text and defaults:
        window = defaults.sliding_window
    if text.get("use_sliding_window") is False or (
        "use_sliding_window" not in text and model_type.startswith(("qwen2", "qwen3", "smollm3"))
    ):
        window = None
    window = window or None
    chunk = _first(text, ("attention_chunk_size",), 8192 if model_type.startswith("llama4") else None)
    listed = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed):
        types = tuple(_CALLED.get(str(each), str(each)) for each in listed)[:layers]
    else:
        types = _derived_types(text, model_type, layers, window, chunk)
    if set(types) == {"full_attention"}:
        return (), None
    return types, chunk if "chunked_attention" in types else window


def _derived_types(
    text: Mapping[str, Any], model_type: str, layers: int, window: int | None, chunk: int | None
) -> tuple[str, ...]:
    if model_type in ("mamba", "mamba2", "falcon_mamba"):
        return ("linear_attention",) * layers
    if model_type.startswith(("qwen3_next", "qwen3_5")):
        every = _first(text, ("full_attention_interval",), 4) or 4
        return tuple("linear_attention" if (i + 1) % every else "full_attention" for i in range(layers))
    if model_type.startswith("llama4"):
        every = _first(text, ("no_rope_layer_interval",), 4) or 4
        return (
            tuple("chunked_attention" if (i + 1) % every else "full_attention" for i in range(layers)) if chunk else ()
        )
    if not window:
        return ()
    if model_type.startswith(("qwen2", "qwen3")):
        first = _first(text, ("max_window_layers",), 28) or 0
        return tuple("sliding_attention" if i >= first else "full_attention" for i in range(layers))
    every = _first(text, ("sliding_window_pattern", "_sliding_window_pattern"), _PATTERNS.get(model_type)) or 0
    if every > 1:
        return tuple("sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers))
    return ("sliding_attention",) * layers


def _first(mapping: Mapping[str, Any], names: tuple[str, ...], default: int | None) -> int | None:
    """The first of these entries that is a believable whole number of zero or more."""
    for name in names:
        value = mapping.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_FIGURE:
            return value
    return default


def _word(mapping: Mapping[str, Any], name: str) -> str:
    value = mapping.get(name)
    return value if isinstance(value, str) else ""
