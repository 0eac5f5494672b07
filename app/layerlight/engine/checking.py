"""The empty model: exact names, bytes and KV cache before the first weight is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerlight.core.errors import BadRequest, BrokenModel, MapMismatch, NotAModel
from layerlight.core.messages import LoadRequest, ModelChecked
from layerlight.engine.failures import LIBRARY_FAILURES, loading_failure
from layerlight.engine.quantizing import is_quantized, quantize_empty, quantized_bytes, unquantized_modules

KV_PROBE = (24, 32)
"""Two lengths of a first look at the cache, in tokens; what grows between them is per token."""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """An empty model held against a request. `device_map` is complete and disjoint, as transformers needs it."""

    config: Any
    model: Any
    device_map: dict[str, str]
    main: str
    """The device that runs layers resting in RAM or on disk."""
    checked: ModelChecked
    entry_layers: dict[str, str]
    """Layer by parameter name."""


def check(request: LoadRequest) -> CheckedModel:
    """Builds the empty model and compares it with the request's placements.

    Raises NotAModel, BrokenModel or LoadFailed when there is no model to build, MapMismatch by name when placements
    name what the model does not have, or leave weights without a place.
    """
    config = read_config(request)
    model = empty_model(config, request)
    places = {placement.layer: placement.rests_on for placement in request.placements}
    main = main_device(request)
    _require_names(model, places)
    device_map = complete_map(model, places, main)
    kv_bytes = kv_cache_bytes(model, request.context)
    if request.quantization:
        quantize_empty(model, request.quantization, torch_dtype(request.dtype))
    sizes = layer_bytes(model, tuple(places), torch_dtype(request.dtype))
    checked = ModelChecked(
        folder=request.folder,
        layers=tuple(sizes.items()),
        kv_bytes=kv_bytes,
        unquantized=unquantized_modules(model) if request.quantization else (),
    )
    return CheckedModel(config, model, device_map, main, checked, _layer_by_parameter(model, places))


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises BadRequest when there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise BadRequest(f"“{name}” is not a dtype that torch knows.", hint="Use bfloat16, float16 or float32.")
    return dtype


def read_config(request: LoadRequest) -> Any:
    """transformers' configuration of the folder; nothing in the folder is run."""
    from transformers import AutoConfig

    folder = Path(request.folder)
    if not folder.is_dir():
        raise NotAModel(f"{request.folder} is not a folder.", hint="Choose the folder that holds config.json.")
    if not (folder / "config.json").is_file():
        raise NotAModel(f"{folder.name} has no config.json.", hint="Choose the folder that holds config.json.")
    if (folder / "config.json").read_bytes().startswith(b"\xef\xbb\xbf"):
        raise BrokenModel(
            f"config.json of {folder.name} begins with a byte-order mark, which makes it invalid JSON.",
            hint="Save the file again as UTF-8 without a byte-order mark.",
        )
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except LIBRARY_FAILURES as error:
        failure = loading_failure(error, folder.name)
    else:
        config._attn_implementation = request.attention
        return config
    raise failure


def empty_model(config: Any, request: LoadRequest) -> Any:
    """The model on the meta device: every module, no memory."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch_dtype(request.dtype), trust_remote_code=False, attn_implementation=request.attention
            )
    except LIBRARY_FAILURES as error:
        failure = loading_failure(error, Path(request.folder).name)
    else:
        model.eval()
        return model
    raise failure


def main_device(request: LoadRequest) -> str:
    """Where layers that rest in RAM or on disk run; without any, where the first layer runs.

    Raises MapMismatch when the request wants two such devices, which accelerate can't do.
    """
    mains = list(
        dict.fromkeys(placement.runs_on for placement in request.placements if placement.rests_on in ("cpu", "disk"))
    )
    if len(mains) > 1:
        raise MapMismatch(
            f"Layers resting in RAM or on disk can run on one device only, not on {' and '.join(mains)}.",
            title="That plan can't be carried out",
        )
    if mains:
        return mains[0]
    return request.placements[0].runs_on if request.placements else "cpu"


def complete_map(model: torch.nn.Module, places: Mapping[str, str], main: str) -> dict[str, str]:
    """`places` with every module it leaves out: buffers at the main device, tied weights beside their source.

    No parent is ever named: transformers matches names as prefixes, so a default for a parent would catch its
    children, and `layers.1` would catch `layers.10` were that not listed itself.
    Raises MapMismatch when weights would be without a place.
    """
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    complete = dict(places)
    uncovered: list[str] = []
    for name in _uncovered(model, places):
        sources = {tied[full] for full in _parameter_names(model, name) if full in tied}
        untied = [full for full in _parameter_names(model, name) if full not in tied]
        if untied:
            uncovered.extend(untied)
        elif sources:
            complete[name] = next((places[each] for each in places if _holds(each, min(sources))), main)
        else:
            complete[name] = main
    if uncovered:
        raise MapMismatch(f"It leaves weights without a place: {_some(uncovered)}.", hint="Plan again for this model.")
    return complete


def layer_bytes(model: torch.nn.Module, layers: Iterable[str], dtype: torch.dtype) -> dict[str, int]:
    """Bytes of each layer once loaded; weights that two layers share count for the first."""
    single = _kept_in_single_precision(model, dtype)
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    counted: set[str] = set()
    sizes: dict[str, int] = {}
    for layer in layers:
        size = 0
        for inner_name, inner in model.get_submodule(layer).named_modules():
            prefix = ".".join(part for part in (layer, inner_name) if part)
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
    """Bytes of the KV cache at `context` tokens, found by running the empty model at two lengths.

    Layers with a window or a constant state do not grow between two lengths beyond it, so the second look is at the
    context itself; only where the empty model can't run that far is it extended from two short looks.
    """
    try:
        return _cache_bytes(model, context)
    except LIBRARY_FAILURES:  # a model that does not run on meta: an estimate from two short lengths
        try:
            short, longer = (_cache_bytes(model, length) for length in KV_PROBE)
        except LIBRARY_FAILURES:  # nothing to say about this architecture
            return 0
        return short + (longer - short) * max(0, context - KV_PROBE[0]) // (KV_PROBE[1] - KV_PROBE[0])


def _cache_bytes(model: Any, length: int) -> int:
    with torch.inference_mode():
        out = model(
            input_ids=torch.zeros((1, length), dtype=torch.long, device="meta"), use_cache=True, logits_to_keep=1
        )
    cache = getattr(out, "cache", None)
    if cache is None:
        cache = out.past_key_values
    return sum(tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in _tensors_of(layer))


def _tensors_of(layer: Any) -> list[torch.Tensor]:
    """Every tensor that one layer of a cache holds, lists of them included, each once."""
    found: dict[int, torch.Tensor] = {}
    for value in vars(layer).values():
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, torch.Tensor):
                found[id(each)] = each
    return list(found.values())


def _require_names(model: torch.nn.Module, places: Mapping[str, str]) -> None:
    known = {name for name, _ in model.named_modules()}
    absent = [name for name in places if name not in known]
    if absent:
        raise MapMismatch(
            f"It names {_some(absent)}, which {type(model).__name__} does not have.", hint="Plan again for this model."
        )


def _uncovered(model: torch.nn.Module, places: Mapping[str, str]) -> list[str]:
    """Topmost modules with tensors that no placement covers and that cover no placement."""
    found: list[str] = []

    def visit(module: torch.nn.Module, name: str) -> None:
        if name in places:
            return
        if name and not any(_holds(name, each) for each in places):
            if any(True for _ in (*module.parameters(), *module.buffers())):
                found.append(name)
            return
        for own, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            found.append(f"{name}.{own}" if name else own)
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name)

    visit(model, "")
    return found


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + ".")


def _parameter_names(model: torch.nn.Module, name: str) -> list[str]:
    """Full names of parameters in a module, or of the parameter itself; a tied one is named like any other."""
    return [full for full, _ in model.named_parameters(remove_duplicate=False) if _holds(name, full)]


def _layer_by_parameter(model: torch.nn.Module, places: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{layer}.{name}": layer
        for layer in places
        for name, _ in (
            *model.get_submodule(layer).named_parameters(remove_duplicate=False),
            *model.get_submodule(layer).named_buffers(remove_duplicate=False),
        )
    }


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
    patterns = [re.escape(name).replace(r"\*", ".*") for name in sorted(names)]
    return re.compile(rf"(?:^|\.)(?:{'|'.join(patterns)})(?:\.|$)")


def _some(names: list[str]) -> str:
    shown = ", ".join(f"“{name}”" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
