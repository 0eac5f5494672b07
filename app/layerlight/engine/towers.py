"""Towers: what stands beside a language model, for pictures and sound; a pass over text never calls it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from layerlight.core.inspecting.layer_names import NameRules, loaded_name
from layerlight.core.messages import LoadRequest
from layerlight.engine.disk_weights import Index, is_called, weights_on_disk
from layerlight.engine.nesting import module_of, own_modules
from layerlight.engine.places import place_of_execution
from layerlight.engine.ring.unit_layout import StoredTensor


def towers_of(model: Any, layers: Collection[str]) -> frozenset[str]:
    """Those of the layers that lie outside the language model and are not its head; none where it has no towers."""
    decoder, tables = model.get_decoder(), (model.get_input_embeddings(), model.get_output_embeddings())
    inside = {id(module) for module in decoder.modules()}
    if id(tables[0]) not in inside:  # what the library found is no language model
        return frozenset()
    inside.update(id(table) for table in tables)
    return frozenset(layer for layer in layers if id(module_of(model, layer)) not in inside)


def rest_on_disk(model: Any, request: LoadRequest, index: Index) -> dict[str, StoredTensor]:
    """Leaves towers on disk that the CPU would run where they are, without accelerate; their weights by full name.

    So it is with parameters that stand alone, wherever they would be needed: accelerate has no way to bring them.
    Raises BrokenModel when a file is no longer what it was.
    """
    from accelerate.hooks import remove_hook_from_module

    layers = tuple(placement.layer for placement in request.placements)
    towers = towers_of(model, layers)
    there = [
        each.layer
        for each in request.placements
        if each.layer in towers
        and each.rests_on == "disk"
        and (each.runs_on == "cpu" or not is_called(module_of(model, each.layer)))
    ]
    found = weights_on_disk(model, there, layers, index)
    for layer in found:
        for _, module in own_modules(model, layer, layers):
            remove_hook_from_module(module)
    return {weight.full: weight.stored for own in found.values() for weight in own}


def tell_device(model: Any, layers: Collection[str]) -> None:
    """Makes a model with towers say that it is where its language model runs, if its first weight is nowhere now.

    transformers asks the first weight, a tower's, and a few models (Idefics3) send their input there.
    """
    from transformers import PreTrainedModel

    if not towers_of(model, layers):
        return
    device = torch.device(place_of_execution(model.get_input_embeddings()))
    decoder = model.get_decoder()
    for module in model.modules():
        around = isinstance(module, PreTrainedModel) and any(each is decoder for each in module.modules())
        if around and module is not decoder and module.device.type == "meta":
            known = type(module)
            told = {"device": property(lambda _self: device), "__module__": known.__module__}
            module.__class__ = type(known.__name__, (known,), told)


def beside_text(unexpected: Iterable[str], config: Any, model: Any) -> list[str]:
    """Names in the files that a model has no place for, without those of towers where it is the language model alone.

    transformers knows that only of some types (Qwen3.5, not Mllama or Llama 4).
    """
    if type(model.config) is type(config):
        return list(unexpected)
    rules = NameRules(config.model_type, nested=True)
    return [name for name in unexpected if loaded_name(name, rules) is not None]
