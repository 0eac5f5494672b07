"""accelerate's own strategies: the map that transformers would load by, for a model, a machine and a budget."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerlight.core.device import CPU, DISK, LARGEST_SIZE
from layerlight.core.messages import LoadRequest
from layerlight.core.model import Model
from layerlight.core.placing import ENGINE_STRATEGIES
from layerlight.core.plan import Plan
from layerlight.core.planning.rooms import rooms_of
from layerlight.engine.empty_model import empty_model, read_config, torch_dtype
from layerlight.engine.failures import LIBRARY_FAILURES, loading_failure
from layerlight.engine.quantizing import bitsandbytes_config

Key = int | str
"""A place as accelerate names it: accelerators but Apple's by number."""


def strategy_maps(
    plan: Plan, strategies: Sequence[str] = ENGINE_STRATEGIES, config: Mapping[str, Any] | None = None
) -> dict[str, tuple[tuple[str, str], ...]]:
    """(layer, place) of every layer by each strategy, for the plan's model, machine, budget, dtype and quantisation.

    `config` is the content of config.json for a model without a folder. The map is complete and is not promised to
    fit: accelerate counts weights alone. Weights that their files hold quantised are counted as loaded in the plan's
    dtype. Raises NotAModel, BrokenModel and LoadFailed as building the empty model does.
    """
    model, quantizer = _empty(plan, config)
    keys = _keys(plan)
    most = {key: size for key, (_, size) in keys.items()}
    names: dict[Key, str] = {DISK: DISK, **{key: place for key, (place, _) in keys.items()}}
    found = {}
    for strategy in strategies:
        try:
            by_module = _device_map(model, strategy, dict(most), quantizer)
        except LIBRARY_FAILURES as error:
            failure = loading_failure(error, plan.model.name)
        else:
            found[strategy] = _by_layer(plan.model, {name: names[key] for name, key in by_module.items()})
            continue
        raise failure
    return found


def _empty(plan: Plan, config: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """(the empty model, transformers' quantizer or None)."""
    with _folder(plan.model, config) as folder:
        request = LoadRequest(
            folder, (), plan.dtype, plan.budget.context, plan.wishes.quantization, plan.attention
        )  # fmt: skip
        model = empty_model(read_config(request), request)
    return model, _quantizer(model, plan) if plan.wishes.quantization else None


def _quantizer(model: Any, plan: Plan) -> Any:
    from transformers.quantizers import AutoHfQuantizer

    dtype = torch_dtype(plan.dtype)
    settings = bitsandbytes_config(plan.wishes.quantization or "", dtype)
    quantizer = AutoHfQuantizer.from_config(settings, pre_quantized=False)
    quantizer.preprocess_model(model=model, dtype=dtype, device_map={"": "cpu"})
    return quantizer


@contextmanager
def _folder(model: Model, config: Mapping[str, Any] | None) -> Iterator[str]:
    """The model's folder, or one for the time being that holds its config and has its name."""
    if model.folder or config is None:
        yield model.folder
        return
    with tempfile.TemporaryDirectory(prefix="layerlight-") as place:
        folder = Path(place) / (model.name.rpartition("/")[2] or "model")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        yield str(folder)


def _keys(plan: Plan) -> dict[Key, tuple[str, int]]:
    """(place, bytes that may be taken) by accelerate's key. Where RAM is the accelerator's, it is not counted twice."""
    rooms = [room for room in rooms_of(plan.machine, plan.budget) if room.device.id != DISK]
    accelerators = [room for room in rooms if room.device.is_accelerator and room.capacity != 0]
    shared = any(room.device.shares_memory_with == CPU for room in accelerators)
    keys: dict[Key, tuple[str, int]] = {}
    for number, room in enumerate(accelerators):
        key: Key = "mps" if room.device.kind == "mps" else number
        keys[key] = (room.device.id, _bytes(room.capacity, room.device.total))
    for room in rooms:
        if room.device.id == CPU and not shared:
            keys[CPU] = (CPU, _bytes(room.capacity, room.device.total))
    return keys


def _bytes(capacity: int | None, total: int | None) -> int:
    return next((size for size in (capacity, total) if size is not None), LARGEST_SIZE)


def _device_map(model: Any, strategy: str, most: dict[Key, int], quantizer: Any) -> dict[str, Key]:
    """Module → key, as `from_pretrained(device_map=strategy, max_memory=most)` works it out; `most` is spent on it."""
    from transformers.integrations.accelerate import get_balanced_memory, infer_auto_device_map

    whole = model._no_split_modules
    if strategy != "sequential":
        most = get_balanced_memory(
            model,
            max_memory=most,
            no_split_module_classes=whole,
            hf_quantizer=quantizer,
            low_zero=strategy == "balanced_low_0",
        )
    if quantizer is not None:
        most = quantizer.adjust_max_memory(most)
    found: dict[str, Key] = infer_auto_device_map(
        model,
        max_memory=most,
        no_split_module_classes=whole,
        hf_quantizer=quantizer,
        no_placement_params=getattr(model, "_no_placement_params", None),
    )
    return found


def _by_layer(model: Model, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The place of each layer; layers that share weights rest where the first of them does."""
    chosen = {layer.name: _place(layer.name, places) for layer in model.layers}
    for group in model.tied:
        chosen |= dict.fromkeys(group, chosen[group[0]])
    return tuple(chosen.items())


def _place(layer: str, places: Mapping[str, str]) -> str:
    """That of the layer, of a module around it, or of the first module in it."""
    name = layer
    while name and name not in places:
        name = name.rpartition(".")[0]
    if name in places:
        return places[name]
    inner = (place for module, place in places.items() if module.startswith(f"{layer}."))
    return next(inner, next(iter(places.values())))
