"""config.json → TextShape: the numbers that decide KV cache and working memory, as transformers understands them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerlight.core.inspecting.config_defaults import ConfigDefaults, config_defaults
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.figures import first_figure
from layerlight.core.inspecting.layer_types import HYBRID, LINEAR, layer_types
from layerlight.core.model import TextShape
from layerlight.core.sizing.linear_state import linear_shape

MOST_LAYERS = 10_000

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "moe_intermediate_size")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
_KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "context_length", "model_max_length")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_SHARED_EXPERT = (
    "shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
)  # fmt: skip

_NO_ATTENTION = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})
_NOT_LATENT = frozenset({"glm4_moe"})
"""Types whose configs may name a rank for latent attention that they don't have."""
_UNLIMITED = frozenset({"bloom", "mpt", "mamba", "mamba2", "falcon_mamba", "xlstm", "rwkv", "recurrent_gemma"})
"""Model types whose positions have no end: a length in their config is only what they were trained with."""


def text_shape(config: ConfigFile) -> TextShape | None:
    """The shape of the language model; None where the config does not describe one."""
    text = config.text
    nested = text is not config.content
    model_type = _word(text, "model_type") or config.model_type
    defaults = config_defaults(model_type) or config_defaults(config.model_type)
    hidden = first_figure(text, _HIDDEN, defaults.hidden_size if defaults else None)
    layers = first_figure(text, _LAYERS, defaults.layers if defaults else None)
    vocabulary = first_figure(text, ("vocab_size", "n_words"), None) or (
        first_figure(config.content, ("vocab_size",), defaults.vocabulary if defaults else None)
        if nested or defaults
        else None
    )
    if not hidden or not layers or layers > MOST_LAYERS or vocabulary is None:
        return None
    heads = first_figure(text, _HEADS, defaults.heads if defaults else None) or 0
    types, window = layer_types(text, model_type, layers, defaults)
    latent = None if model_type in _NOT_LATENT else first_figure(text, ("kv_lora_rank",), None)
    return TextShape(
        model_type,
        hidden,
        first_figure(text, _INTERMEDIATE, _default_intermediate(text, hidden, defaults)) or 4 * hidden,
        layers,
        heads,
        0 if model_type in _NO_ATTENTION else _key_value_heads(text, model_type, heads, defaults),
        _head_dim(text, hidden, heads, defaults),
        vocabulary,
        _context_length(text, model_type, defaults),
        types,
        window,
        latent,
        first_figure(text, ("qk_rope_head_dim",), None) if latent else None,
        first_figure(text, _EXPERTS, None) or None,
        first_figure(text, _EXPERTS_PER_TOKEN, None) or None,
        linear_shape(text, model_type, hidden) if set(types) & {LINEAR, HYBRID} else None,
        *(_latent_dims(text) if latent else (None, None, None)),
        *_full_attention(text, model_type),
        *_expert_sizes(text, model_type),
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


def promised_layers(config: ConfigFile) -> int | None:
    """The number of layers that the config names, however unbelievable; None where it names none."""
    return first_figure(config.text, _LAYERS, None)


def _key_value_heads(text: Mapping[str, Any], model_type: str, heads: int, defaults: ConfigDefaults | None) -> int:
    attention = text.get("attn_config")
    if isinstance(attention, dict) and (found := first_figure(attention, ("kv_n_heads",), None)):
        return found
    if model_type == "falcon" and not text.get("new_decoder_architecture"):
        return 1 if text.get("multi_query", True) else heads
    if model_type == "gpt_bigcode":
        return 1 if text.get("multi_query", True) else heads
    if "num_attention_heads" in text and "num_key_value_heads" in text and text["num_key_value_heads"] is None:
        return heads
    return first_figure(text, _KEY_VALUE_HEADS, defaults.key_value_heads if defaults else None) or heads


def _head_dim(text: Mapping[str, Any], hidden: int, heads: int, defaults: ConfigDefaults | None) -> int:
    if heads and _word(text, "model_type") in ("zamba", "zamba2"):
        return first_figure(text, ("attention_head_dim",), None) or 2 * hidden // heads
    found = first_figure(text, _HEAD_DIM, defaults.head_dim if defaults else None)
    return found or (hidden // heads if heads else 0)


def _latent_dims(text: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    """(query head, value head, index) of latent attention."""
    plain = first_figure(text, ("qk_nope_head_dim",), None) or 0
    turned = first_figure(text, ("qk_rope_head_dim",), None) or 0
    index = first_figure(text, ("index_head_dim",), None)
    return (plain + turned) or None, first_figure(text, ("v_head_dim",), None), index


def _full_attention(text: Mapping[str, Any], model_type: str) -> tuple[int | None, int | None]:
    """(head length, key-value heads) of full attention, where a type gives it others than its windows."""
    if not model_type.startswith("gemma4"):
        return None, None
    heads = first_figure(text, ("num_global_key_value_heads",), None) if text.get("attention_k_eq_v") else None
    return first_figure(text, ("global_head_dim",), 512), heads


def _expert_sizes(text: Mapping[str, Any], model_type: str) -> tuple[int | None, int]:
    """(elements inside one expert, inside those that every token passes)."""
    if not first_figure(text, _EXPERTS, None):
        return None, 0
    size = first_figure(text, ("moe_intermediate_size", "expert_ffn_hidden_size"), None)
    size = size or first_figure(text, ("intermediate_size",), None)
    shared = first_figure(text, _SHARED_EXPERT, None)
    if shared is None:
        shared = (first_figure(text, ("n_shared_experts",), None) or 0) * (size or 0)
    if model_type.startswith("llama4"):
        shared = size or 0
    return size, shared


def _default_intermediate(text: Mapping[str, Any], hidden: int, defaults: ConfigDefaults | None) -> int:
    ratio = first_figure(text, ("expansion_ratio",), None)
    if ratio:
        return ratio * hidden
    return (defaults.intermediate_size if defaults else None) or 4 * hidden


def _context_length(text: Mapping[str, Any], model_type: str, defaults: ConfigDefaults | None) -> int | None:
    """Positions the model was made for. YaRN stretches them by its factor unless the config counts that already."""
    if model_type in _UNLIMITED:
        return None
    length = first_figure(text, _CONTEXT, None) or (defaults.context_length if defaults else None)
    if not length:
        return None
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    if isinstance(rope, dict) and "yarn" in (rope.get("rope_type"), rope.get("type")):
        original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if isinstance(original, int) and isinstance(factor, int | float) and 1 <= factor <= 1000:
            return max(length, int(original * factor))
    return length


def _word(mapping: Mapping[str, Any], name: str) -> str:
    value = mapping.get(name)
    return value if isinstance(value, str) else ""
