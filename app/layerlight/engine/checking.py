"""A request held against the empty model: exact names, bytes and KV cache before the first weight is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerlight.core.messages import LoadRequest, ModelChecked
from layerlight.core.sizing.kv_cache import packed_bytes
from layerlight.core.sizing.told_bytes import ToldBytes
from layerlight.engine.cache_choice import require_cache
from layerlight.engine.device_map import complete_map, main_device, require_names
from layerlight.engine.empty_model import empty_model, read_config, torch_dtype
from layerlight.engine.empty_pass import pass_bytes
from layerlight.engine.exact_bytes import kv_cache_bytes, layer_bytes
from layerlight.engine.nesting import own_modules
from layerlight.engine.quantizing import (
    quantize_empty,
    require_packed,
    require_quantization,
    stored_bitsandbytes,
    unquantized_modules,
)
from layerlight.engine.stored_names import absent_parameters, require_shapes, stored_tensors


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A request that can be carried out. `device_map` is complete and disjoint, as transformers needs it."""

    config: Any
    device_map: dict[str, str]
    main: str
    """The device that runs layers resting in RAM or on disk."""
    checked: ModelChecked
    layer_of: dict[str, str]
    """Layer by parameter name."""
    converts: bool
    """Whether tensors are merged or cut while loading, as fused experts are."""
    resaved: int
    """Bytes that layers on disk need in an offload folder, because their files can't be read in place."""


def check(request: LoadRequest) -> CheckedModel:
    """Builds the empty model and compares it with the request's placements and with the folder's files.

    Raises NotAModel, BrokenModel or LoadFailed when there is no model to build or its files are not whole,
    BadRequest when bitsandbytes can't do what is asked, MapMismatch by name when placements name what the model does
    not have, or leave weights without a place.
    """
    config = read_config(request)
    stored = getattr(config, "quantization_config", None)
    quantization = request.quantization or stored_bitsandbytes(stored)
    if quantization:
        require_quantization(quantization, {placement.rests_on for placement in request.placements})
    require_cache(request.kv, config)
    model = empty_model(config, request)
    dtype = torch_dtype(request.dtype)
    places = {placement.layer: placement.rests_on for placement in request.placements}
    main = main_device(request)
    require_names(model, places)
    device_map = complete_map(model, places, main)
    layer_of = _layer_by_parameter(model, places)
    tensors = stored_tensors(Path(request.folder), config)
    if stored:
        require_packed(stored, tensors)
    else:
        require_shapes(model, tensors, Path(request.folder).name)
    absent = absent_parameters(model, tensors)
    resaved = sum(
        parameter.numel() * parameter.element_size()
        for name, parameter in model.named_parameters()
        if name in absent and places.get(layer_of.get(name, "")) == "disk"
    )
    passed = pass_bytes(model, request.context, request.prefill_chunk)
    if request.quantization:
        quantize_empty(model, request.quantization, dtype)
    if stored:
        sizes = {placement.layer: placement.size for placement in request.placements}
    else:
        sizes = layer_bytes(model, tuple(places), dtype)
    checked = ModelChecked(
        folder=request.folder,
        layers=tuple(sizes.items()),
        kv_bytes=_cache_bytes(request, passed.kv if passed else (kv_cache_bytes(model, request.context),)),
        unquantized=unquantized_modules(model) if request.quantization else (),
        told=ToldBytes(
            request.dtype,
            request.quantization,
            request.attention,
            request.context,
            request.prefill_chunk,
            () if stored else tuple(sizes.items()),
            passed.kv if passed else (),
            passed.work if passed else None,
        ),
    )
    return CheckedModel(config, device_map, main, checked, layer_of, bool(absent), resaved)


def _cache_bytes(request: LoadRequest, kept: Sequence[int]) -> int:
    """Of what layers keep in the model's dtype, the bytes in what the request keeps it in."""
    return sum(packed_bytes(size, request.dtype) if request.kv else size for size in kept)


def _layer_by_parameter(model: torch.nn.Module, places: Mapping[str, str]) -> dict[str, str]:
    """What layers inside others hold is theirs."""
    return {
        f"{prefix}.{name}": layer
        for layer in sorted(places, key=len)
        for prefix, module in own_modules(model, layer, places)
        for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    }
