"""Bytes of layers and of the KV cache, told by the empty model."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch

from layerlight.engine.empty_pass import cache_after
from layerlight.engine.failures import LIBRARY_FAILURES
from layerlight.engine.nesting import own_modules
from layerlight.engine.quantizing import is_quantized, quantized_bytes

KV_PROBE = (24, 32)
"""Two lengths of a first look at the cache, in tokens; what grows between them is per token."""


def layer_bytes(model: torch.nn.Module, layers: Collection[str], dtype: torch.dtype) -> dict[str, int]:
    """Bytes of each layer once loaded; weights that two layers share count for the first."""
    single = _kept_in_single_precision(model, dtype)
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    counted: set[str] = set()
    sizes: dict[str, int] = {}
    for layer in layers:
        size = 0
        for prefix, inner in own_modules(model, layer, layers):
            for name, parameter in inner.named_parameters(recurse=False):
                full = f"{prefix}.{name}"
                source = tied.get(full, full)
                if source not in counted:
                    counted.add(source)
                    size += _parameter_bytes(inner, name, parameter, full, single)
            for name, buffer in inner.named_buffers(recurse=False):
                if name not in inner._non_persistent_buffers_set:
                    size += buffer.numel() * buffer.element_size()
        sizes[layer] = size
    return sizes


def kv_cache_bytes(model: Any, context: int) -> int:
    """Bytes of the cache at `context` tokens, extended from two short looks; 0 where the empty model can't run."""
    try:
        short, longer = (cache_after(model, length) for length in KV_PROBE)
    except LIBRARY_FAILURES:  # nothing to say about this architecture
        return 0
    return short + (longer - short) * max(0, context - KV_PROBE[0]) // (KV_PROBE[1] - KV_PROBE[0])


def _parameter_bytes(
    module: torch.nn.Module, name: str, parameter: torch.nn.Parameter, full: str, single: re.Pattern[str] | None
) -> int:
    if is_quantized(module) and name == "weight":
        rows, columns = module.out_features, module.in_features
        return quantized_bytes(module, int(rows), int(rows) * int(columns))  # type: ignore[arg-type]
    if single is not None and single.search(full):
        return parameter.numel() * 4
    return parameter.numel() * parameter.element_size()


def _kept_in_single_precision(model: Any, dtype: torch.dtype) -> re.Pattern[str] | None:
    """Which parameters this architecture loads in float32 whatever was asked."""
    names: set[str] = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        names |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    if not names or dtype == torch.float32:
        return None
    return re.compile("|".join(name.replace("*", ".*") for name in sorted(names)))  # anywhere, as the library does it
