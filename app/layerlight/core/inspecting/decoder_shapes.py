"""A decoder layer's parameters and their shapes, by the numbers of its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerlight.core.errors import BadRequest
from layerlight.core.model import TextShape

Shapes = dict[str, tuple[int, ...]]

COMPLETE = "Use the model's own, complete config.json."


@dataclass(frozen=True, slots=True)
class _Family:
    """What sets one model type's decoder layer apart. A bias is `always`, `never`, or as the config's
    attention_bias says."""

    bias: str = "never"
    output_bias: str = "never"
    head_norms: bool = False
    """RMS norms over each head's queries and keys."""
    four_norms: bool = False
    """Norms after attention and MLP too."""
    fused: bool = False
    """Queries, keys and values in one matrix, gate and up in another."""
    mlp_bias: bool = False
    """Whether the config's mlp_bias counts."""


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family("config", "config", mlp_bias=True),
    "granite": _Family("config", "config", mlp_bias=True),
    "smollm3": _Family("config", "config", mlp_bias=True),
    "mistral": _Family(),
    "mixtral": _Family(),
    "qwen2": _Family("always"),
    "qwen2_5_vl": _Family("always"),
    "qwen3": _Family("config", "config", head_norms=True),
    "qwen3_moe": _Family("config", "config", head_norms=True),
    "glm4_moe": _Family("config"),
    "phi3": _Family(fused=True),
    "gemma": _Family("config", "config"),
    "gemma2": _Family("config", "config", four_norms=True),
    "gemma3": _Family("config", "config", head_norms=True, four_norms=True),
    "gemma3_text": _Family("config", "config", head_norms=True, four_norms=True),
    "gpt_oss": _Family("config", "config"),
    "deepseek_v3": _Family("config", "config"),
    "granitemoehybrid": _Family("config", "config"),
}

_BIASED_UNLESS_SAID = frozenset({"gpt_oss"})

DECODER_TYPES = frozenset(_FAMILIES)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers and switches of the config."""

    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> int:
        found = self.get(name)
        if found is None:
            raise BadRequest(f"config.json does not say “{name}”.", hint=COMPLETE)
        return found

    def get(self, name: str, default: int | None = None) -> int | None:
        value = self.content.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default

    def on(self, name: str, default: bool = False) -> bool:
        value = self.content.get(name)
        return value if isinstance(value, bool) else default


def decoder_layer(kind: str, numbers: Numbers, shape: TextShape, index: int) -> Shapes:
    """Layer `index` of a model of the type `kind`, names within the layer. Raises BadRequest for a missing number."""
    family = _FAMILIES[kind]
    hidden = (shape.hidden_size,)
    found: Shapes = {"input_layernorm.weight": hidden, "post_attention_layernorm.weight": hidden}
    if family.four_norms:
        found |= {"pre_feedforward_layernorm.weight": hidden, "post_feedforward_layernorm.weight": hidden}
    if kind == "granitemoehybrid":
        return found | _hybrid_layer(family, numbers, shape, index)
    if kind == "deepseek_v3":
        found |= _latent_attention(numbers, shape)
    else:
        found |= _attention(kind, family, numbers, shape)
    return found | _feed_forward(kind, family, numbers, shape, index)


# -- attention ---------------------------------------------------------------------------------------------------------


def _attention(kind: str, family: _Family, numbers: Numbers, shape: TextShape) -> Shapes:
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    said = numbers.on("attention_bias", kind in _BIASED_UNLESS_SAID)
    bias, output_bias = (each == "always" or (each == "config" and said) for each in (family.bias, family.output_bias))
    if family.fused:
        found = _linear("self_attn.qkv_proj", queries + 2 * keys, shape.hidden_size)
    else:
        found = _linear("self_attn.q_proj", queries, shape.hidden_size, bias)
        found |= _linear("self_attn.k_proj", keys, shape.hidden_size, bias)
        found |= _linear("self_attn.v_proj", keys, shape.hidden_size, bias)
    found |= _linear("self_attn.o_proj", shape.hidden_size, queries, output_bias)
    if family.head_norms or (kind == "glm4_moe" and numbers.on("use_qk_norm")):
        found |= {"self_attn.q_norm.weight": (shape.head_dim,), "self_attn.k_norm.weight": (shape.head_dim,)}
    if kind == "gpt_oss":
        found["self_attn.sinks"] = (shape.heads,)
    return found


def _latent_attention(numbers: Numbers, shape: TextShape) -> Shapes:
    """DeepSeek's multi-head latent attention: queries, keys and values pass through low ranks."""
    hidden, heads, bias = shape.hidden_size, shape.heads, numbers.on("attention_bias")
    rank, rope = numbers["kv_lora_rank"], numbers["qk_rope_head_dim"]
    plain, values = numbers["qk_nope_head_dim"], numbers["v_head_dim"]
    query_rank = numbers.get("q_lora_rank")
    if query_rank is None:
        found = _linear("self_attn.q_proj", heads * (plain + rope), hidden)
    else:
        found = _linear("self_attn.q_a_proj", query_rank, hidden, bias)
        found["self_attn.q_a_layernorm.weight"] = (query_rank,)
        found |= _linear("self_attn.q_b_proj", heads * (plain + rope), query_rank)
    found |= _linear("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, bias)
    found["self_attn.kv_a_layernorm.weight"] = (rank,)
    found |= _linear("self_attn.kv_b_proj", heads * (plain + values), rank)
    return found | _linear("self_attn.o_proj", hidden, heads * values, bias)


# -- what follows attention --------------------------------------------------------------------------------------------


def _feed_forward(kind: str, family: _Family, numbers: Numbers, shape: TextShape, index: int) -> Shapes:
    hidden, experts = shape.hidden_size, shape.experts or 0
    if family.fused:
        found = _linear("mlp.gate_up_proj", 2 * shape.intermediate_size, hidden)
        return found | _linear("mlp.down_proj", hidden, shape.intermediate_size)
    if kind == "mixtral":
        return {"mlp.gate.weight": (experts, hidden)} | _experts("mlp", experts, shape.intermediate_size, hidden)
    if kind == "gpt_oss":
        return _gpt_oss_experts(experts, shape.intermediate_size, hidden)
    if kind == "qwen3_moe" and experts and _sparse(numbers, index):
        found = {"mlp.gate.weight": (experts, hidden)}
        return found | _experts("mlp", experts, numbers["moe_intermediate_size"], hidden)
    if kind in ("glm4_moe", "deepseek_v3") and index >= numbers["first_k_dense_replace"]:
        width = numbers["moe_intermediate_size"]
        found = {"mlp.gate.weight": (experts, hidden)} | _experts("mlp", experts, width, hidden)
        return found | _gated("mlp.shared_experts", width * numbers["n_shared_experts"], hidden)
    return _gated("mlp", shape.intermediate_size, hidden, family.mlp_bias and numbers.on("mlp_bias"))


def _sparse(numbers: Numbers, index: int) -> bool:
    dense = numbers.content.get("mlp_only_layers")
    return (
        not (isinstance(dense, list) and index in dense)
        and (index + 1) % (numbers.get("decoder_sparse_step") or 1) == 0
    )


def _gated(name: str, width: int, hidden: int, bias: bool = False) -> Shapes:
    found = _linear(f"{name}.gate_proj", width, hidden, bias) | _linear(f"{name}.up_proj", width, hidden, bias)
    return found | _linear(f"{name}.down_proj", hidden, width, bias)


def _experts(name: str, experts: int, width: int, hidden: int) -> Shapes:
    return {
        f"{name}.experts.gate_up_proj": (experts, 2 * width, hidden),
        f"{name}.experts.down_proj": (experts, hidden, width),
    }


def _gpt_oss_experts(experts: int, width: int, hidden: int) -> Shapes:
    """Biases everywhere, and matrices that lie the other way round."""
    return _linear("mlp.router", experts, hidden, True) | {
        "mlp.experts.gate_up_proj": (experts, hidden, 2 * width),
        "mlp.experts.gate_up_proj_bias": (experts, 2 * width),
        "mlp.experts.down_proj": (experts, width, hidden),
        "mlp.experts.down_proj_bias": (experts, hidden),
    }


def _hybrid_layer(family: _Family, numbers: Numbers, shape: TextShape, index: int) -> Shapes:
    """Granite 4: attention or Mamba 2, then experts where there are any, then the shared MLP."""
    hidden, shared = shape.hidden_size, numbers["shared_intermediate_size"]
    full = index >= len(shape.layer_types) or shape.layer_types[index] == "full_attention"
    found = _attention("granitemoehybrid", family, numbers, shape) if full else _mamba(numbers, hidden)
    if shape.experts:
        found["block_sparse_moe.router.weight"] = (shape.experts, hidden)
        found |= _experts("block_sparse_moe", shape.experts, shape.intermediate_size, hidden)
    found |= _linear("shared_mlp.input_linear", 2 * shared, hidden)
    return found | _linear("shared_mlp.output_linear", hidden, shared)


def _mamba(numbers: Numbers, hidden: int) -> Shapes:
    heads, bias = numbers["mamba_n_heads"], numbers.on("mamba_proj_bias")
    inner = numbers["mamba_expand"] * hidden
    mixed = inner + 2 * numbers["mamba_n_groups"] * numbers["mamba_d_state"]
    found: Shapes = {f"mamba.{name}": (heads,) for name in ("dt_bias", "A_log", "D")}
    found["mamba.conv1d.weight"] = (mixed, 1, numbers["mamba_d_conv"])
    if numbers.on("mamba_conv_bias", True):
        found["mamba.conv1d.bias"] = (mixed,)
    found |= _linear("mamba.in_proj", inner + mixed + heads, hidden, bias)
    found["mamba.norm.weight"] = (inner,)
    return found | _linear("mamba.out_proj", hidden, inner, bias)


def _linear(name: str, outputs: int, inputs: int, bias: bool = False) -> Shapes:
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})
