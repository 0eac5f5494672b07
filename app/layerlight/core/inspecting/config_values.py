"""What config.json says that no model can be: named, with its value, so that nothing is assumed in its place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.figures import LARGEST_FIGURE
from layerlight.core.model import DTYPE_SIZES

HINT = "Download config.json of this model again."

_FIGURES = (
    "hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "n_layers", "num_attention_heads", "n_head",
    "n_heads", "num_key_value_heads", "num_kv_heads", "head_dim", "vocab_size", "max_position_embeddings",
    "n_positions",
)  # fmt: skip
_NEEDED = frozenset({"hidden_size", "num_hidden_layers", "vocab_size"})
"""Figures that may be left out, where the type has one of its own, but never be null."""
_SIZES = ("intermediate_size", "n_inner", "ffn_dim")
"""May be 0, in types without such a part."""
_NO_HEADS = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})
_HEADS = frozenset({"num_attention_heads", "n_head", "n_heads", "num_key_value_heads", "num_kv_heads", "head_dim"})
_EVEN = frozenset({"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "phi", "phi3", "opt", "gpt_neox", "olmo2"})
"""Types whose heads share the hidden size, unless the config gives them a width of their own."""
_SMALL = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_SWITCHES = ("tie_word_embeddings", "use_cache", "attention_bias")
_OBJECTS = ("text_config", "rope_scaling", "rope_parameters", "quantization_config")

_ACTIVATION_FIELDS = ("hidden_act", "activation_function", "hidden_activation")
_NAMED = """
gelu gelu_10 gelu_accurate gelu_fast gelu_new gelu_python gelu_python_tanh gelu_pytorch_tanh hardswish laplace
leaky_relu linear mish prelu quick_gelu relu relu2 relu6 sigmoid silu sqrtsoftplus swish tanh xielu
"""
ACTIVATIONS = frozenset(_NAMED.split())
"""By transformers' names."""
ROPE_TYPES = frozenset({
    "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional", "axial", "ntk_alpha", "xdrope",
    "su", "mrope",
})  # fmt: skip
"""By transformers' names; the last two are old ones that it still reads."""
_OTHER_DTYPES = frozenset({"auto", "half", "float", "double", "float8_e4m3fn", "float8_e5m2"})


def implausible(config: ConfigFile) -> tuple[str, ...]:
    """Sentences, each naming one entry of the config that can't be; empty for one that can."""
    text = config.text
    found = [*_shapes(text, config.model_type), *_numbers(text), *_kinds(config.content)]
    if text is not config.content:
        found += [*_numbers(config.content), *_kinds(text)]
    return tuple(dict.fromkeys(found))


def _shapes(text: Mapping[str, Any], model_type: str) -> Iterator[str]:
    model_type = str(text.get("model_type") or model_type)
    for name in (*_FIGURES, *_SIZES):
        if name not in text or (model_type in _NO_HEADS and name in _HEADS):
            continue
        latent = name == "head_dim" and text.get("kv_lora_rank")
        value, least = text[name], 0 if latent or name in _SIZES else 1
        if isinstance(value, list) or (value is None and name not in _NEEDED):
            continue
        if not _whole(value) or value < least:
            yield _says(name, value, f"it must be a whole number of {least} or more")
        elif value > LARGEST_FIGURE:
            yield _says(name, value, "no model is that large")
    heads, shared = text.get("num_attention_heads"), text.get("num_key_value_heads")
    if _count(heads) and _count(shared) and heads % shared:
        yield f"config.json shares {shared} key-value heads among {heads} heads, which does not come out even."
    yield from _head_width(text, model_type)


def _head_width(text: Mapping[str, Any], model_type: str) -> Iterator[str]:
    hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
    if model_type in _EVEN and not text.get("head_dim") and _count(hidden) and _count(heads) and hidden % heads:
        yield f"config.json divides a hidden_size of {hidden} among {heads} heads, which does not come out even."


def _numbers(part: Mapping[str, Any]) -> Iterator[str]:
    for name, value in part.items():
        if isinstance(value, float) and math.isnan(value) and name not in _FIGURES and name not in _SIZES:
            yield _says(name, value, "that is no number")
        elif name in _SMALL and value is not None and not _between(value, 0, 1):
            yield _says(name, value, "it must be a small number")
        elif name == "rope_theta" and value is not None and not _between(value, 0, 1e30):
            yield _says(name, value, "it must be a number above 0")


def _kinds(part: Mapping[str, Any]) -> Iterator[str]:
    for name in _TOKENS:
        value = part.get(name)
        if not all(_whole(each) for each in (value if isinstance(value, list) else [value]) if each is not None):
            yield _says(name, value, "it must be the number of a token")
    for name in _SWITCHES:
        if part.get(name) is not None and not isinstance(part[name], bool):
            yield _says(name, part[name], "it must be true or false")
    for name in _OBJECTS:
        if part.get(name) is not None and not isinstance(part[name], dict):
            yield _says(name, part[name], "it must be an object")
    for name in _ACTIVATION_FIELDS:
        if part.get(name) is not None and not (isinstance(part[name], str) and part[name] in ACTIVATIONS):
            yield _says(name, part[name], "transformers knows no such function")
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(part.get(name), dict):
            yield from _rope(name, part[name])
    for name in ("dtype", "torch_dtype"):
        value = part.get(name)
        if isinstance(value, str) and value.removeprefix("torch.") not in _OTHER_DTYPES | DTYPE_SIZES.keys():
            yield _says(name, value, "torch knows no such dtype")


def _rope(name: str, rope: Mapping[str, Any]) -> Iterator[str]:
    for key, value in rope.items():
        if isinstance(value, dict):
            yield from _rope(f"{name}.{key}", value)
        elif key in ("rope_type", "type") and value is not None and value not in ROPE_TYPES:
            yield _says(f"{name}.{key}", value, "transformers knows no such rotary positions")
        elif key in ("rope_theta", "factor") and value is not None and not _between(value, 0, 1e30):
            yield _says(f"{name}.{key}", value, "it must be a number above 0")


def _says(name: str, value: Any, why: str) -> str:
    shown = f"“{value}”" if isinstance(value, str) else json.dumps(value)
    return f"config.json says {shown[:60]} for {name}: {why}."


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> TypeGuard[int]:
    return _whole(value) and value > 0


def _between(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least < value < most
