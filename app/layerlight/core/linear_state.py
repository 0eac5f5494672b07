"""Layers without a KV cache (Mamba, gated delta, short convolution): the state they keep, and their inner widths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerlight.core.model import LinearShape

_MAMBA_2 = frozenset({"granitemoehybrid", "granitemoehybrid_text", "bamba", "falcon_h1"})
_MAMBA_1 = frozenset({"mamba", "falcon_mamba", "jamba", "zamba"})
_DELTA = frozenset({"qwen3_next", "olmo_hybrid"})
_CONVOLUTION = frozenset({"lfm2", "lfm2_moe", "lfm2_vl"})


def linear_shape(text: Mapping[str, Any], model_type: str, hidden: int) -> LinearShape | None:
    """The shape of such a layer; None for a model type that has none, or none that is known."""
    kind = _kind(model_type)
    if not kind:
        return None
    convolution, recurrence = _state(text, model_type, hidden)
    chunk = {"mamba2": _figure(text, "mamba_chunk_size", _figure(text, "chunk_size", 256)), "delta": 64}.get(kind, 0)
    return LinearShape(kind, _width(text, model_type, hidden), _heads(text, model_type), chunk, convolution, recurrence)


def _state(text: Mapping[str, Any], model_type: str, hidden: int) -> tuple[int, int]:
    """(elements kept in the model's dtype for the convolution, elements kept in float32 for the recurrence) a layer."""
    width = _width(text, model_type, hidden)
    if model_type in _MAMBA_2:
        groups, state = _figure(text, "mamba_n_groups", 1), _figure(text, "mamba_d_state", 256)
        return (width + 2 * groups * state) * _figure(text, "mamba_d_conv", 4), width * state
    if model_type == "mamba2":
        groups, state = _figure(text, "n_groups", 8), _figure(text, "state_size", 128)
        return (width + 2 * groups * state) * _figure(text, "conv_kernel", 4), width * state
    if model_type == "nemotron_h":
        groups, state = _figure(text, "n_groups", 8), _figure(text, "ssm_state_size", 128)
        return (width + 2 * groups * state) * _figure(text, "conv_kernel", 4), width * state
    if model_type == "zamba2":
        groups, state = _figure(text, "mamba_ngroups", 1), _figure(text, "mamba_d_state", 64)
        return (width + 2 * groups * state) * _figure(text, "mamba_d_conv", 4), width * state
    if model_type in ("jamba", "zamba"):
        return width * _figure(text, "mamba_d_conv", 4), width * _figure(text, "mamba_d_state", 16)
    if model_type in _MAMBA_1:
        return width * _figure(text, "conv_kernel", 4), width * _figure(text, "state_size", 16)
    if model_type in _CONVOLUTION:
        return hidden * _figure(text, "conv_L_cache", 3), 0
    if _is_delta(model_type):
        key, value = _delta_widths(text, model_type)
        recurrent = value * _figure(text, "linear_key_head_dim", 128 if model_type != "olmo_hybrid" else 96)
        return (2 * key + value) * _figure(text, "linear_conv_kernel_dim", 4), recurrent
    return 0, 0


def _width(text: Mapping[str, Any], model_type: str, hidden: int) -> int:
    """Elements a token has inside such a layer; 0 where this is not known."""
    expanded = _figure(text, "mamba_expand", _figure(text, "expand", 2)) * hidden
    if model_type == "falcon_h1":
        return _figure(text, "mamba_d_ssm", 0) or expanded
    if model_type == "nemotron_h":
        return _figure(text, "mamba_num_heads", 128) * _figure(text, "mamba_head_dim", 64)
    if model_type in ("mamba", "falcon_mamba"):
        return _figure(text, "intermediate_size", 0) or expanded
    if model_type in _MAMBA_2 | _MAMBA_1 | {"mamba2", "zamba2"}:
        return expanded
    if model_type in _CONVOLUTION:
        return hidden
    return _delta_widths(text, model_type)[1] if _is_delta(model_type) else 0


def _heads(text: Mapping[str, Any], model_type: str) -> int:
    """Heads that work in chunks of the sequence; 0 where the layer has none."""
    name, default = {
        "mamba2": ("num_heads", 128), "nemotron_h": ("mamba_num_heads", 128), "zamba2": ("n_mamba_heads", 8),
    }.get(model_type, ("mamba_n_heads", 128))  # fmt: skip
    if model_type in _MAMBA_2 | {"mamba2", "nemotron_h", "zamba2"}:
        return _figure(text, name, default)
    return _figure(text, "linear_num_value_heads", 32) if _is_delta(model_type) else 0


def _kind(model_type: str) -> str:
    """`mamba`, `mamba2`, `delta` or `convolution`; empty where a type has no such layers, or none that is known."""
    if model_type in _MAMBA_2 | {"mamba2", "nemotron_h", "zamba2"}:
        return "mamba2"
    if model_type in _MAMBA_1:
        return "mamba"
    if model_type in _CONVOLUTION:
        return "convolution"
    return "delta" if _is_delta(model_type) else ""


def _is_delta(model_type: str) -> bool:
    return model_type in _DELTA or model_type.startswith("qwen3_5")


def _delta_widths(text: Mapping[str, Any], model_type: str) -> tuple[int, int]:
    """(elements of all key heads, of all value heads) a token."""
    keys, values, key_dim, value_dim = (30, 30, 96, 192) if model_type == "olmo_hybrid" else (16, 32, 128, 128)
    return (
        _figure(text, "linear_num_key_heads", keys) * _figure(text, "linear_key_head_dim", key_dim),
        _figure(text, "linear_num_value_heads", values) * _figure(text, "linear_value_head_dim", value_dim),
    )


def _figure(text: Mapping[str, Any], name: str, default: int) -> int:
    value = text.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40 else default
