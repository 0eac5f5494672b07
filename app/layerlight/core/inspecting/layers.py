"""Tensors of a language model → the layers that a plan moves whole, with what they share."""

from __future__ import annotations

from dataclasses import replace

from layerlight.core.device import format_size
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.layer_names import (
    OTHER_EMBEDDINGS,
    NameRules,
    buffer_modules,
    kind_of,
    loaded_name,
    stack_of,
    unit_of,
)
from layerlight.core.inspecting.text_shape import tied_embeddings
from layerlight.core.model import Layer, LayerKind, Tensor

COMPONENT = "model"
"""The one component of a language model."""

_ORDER = {
    LayerKind.TOWER: 0,
    LayerKind.EMBEDDING: 1,
    LayerKind.OTHER: 2,
    LayerKind.DECODER: 3,
    LayerKind.EXPERTS: 3,
    LayerKind.NORM: 4,
    LayerKind.HEAD: 5,
}

_NUMBERED = (LayerKind.DECODER, LayerKind.EXPERTS)


def name_rules(config: ConfigFile, layers: int | None) -> NameRules:
    nested = config.text is not config.content or "vision_config" in config.content
    rotary = config.content.get("position_embedding_type") == "rope" or bool(config.content.get("use_mem_rope"))
    return NameRules(config.model_type, nested and config.model_type != "phi4_multimodal", layers, rotary)


def layers_of(tensors: list[Tensor], rules: NameRules) -> tuple[tuple[Layer, ...], int]:
    """(layers in the order they run, bytes that the loader leaves out)."""
    named = [(loaded_name(tensor.name, rules), tensor) for tensor in tensors]
    stack = stack_of(name for name, _ in named if name)
    units: dict[str, list[Tensor]] = {}
    left_out = 0
    for name, tensor in named:
        if name is None:
            left_out += tensor.size
        else:
            units.setdefault(unit_of(name, stack, rules.experts), []).append(tensor)
    for module in buffer_modules(stack, rules):
        units.setdefault(module, [])
    layers = [_layer(unit, tuple(held), stack, rules) for unit, held in units.items()]
    layers.sort(key=lambda layer: (_ORDER[layer.kind], layer.index or 0, layer.kind is LayerKind.EXPERTS))
    return tuple(layers), left_out


def _layer(unit: str, tensors: tuple[Tensor, ...], stack: str | None, rules: NameRules) -> Layer:
    kind = kind_of(unit, stack, rules)
    return Layer(
        unit,
        COMPONENT,
        kind,
        sum(tensor.elements for tensor in tensors),
        sum(tensor.size for tensor in tensors),
        int(unit[len(stack) + 1 :].partition(".")[0]) if stack and kind in _NUMBERED else None,
        tensors,
    )


def tie(
    layers: tuple[Layer, ...], rules: NameRules, config: ConfigFile, shared: dict[str, str]
) -> tuple[tuple[Layer, ...], tuple[tuple[str, ...], ...], list[str]]:
    """(layers, groups that share weights, notes): a tied head is a layer without bytes of its own.

    `shared` gives the storage of pickled tensors.
    """
    embeddings = (layer for layer in layers if layer.kind is LayerKind.EMBEDDING and layer.tensors)
    embedding = next((layer for layer in embeddings if not OTHER_EMBEDDINGS.search(layer.name)), None)
    head = next((layer for layer in layers if layer.name == rules.head), None)
    if embedding is None or not tied_embeddings(config):
        return layers, (), []
    if head is None:
        head = Layer(rules.head, COMPONENT, LayerKind.HEAD, 0, 0)
        return (*layers, head), ((embedding.name, head.name),), []
    twice = [
        tensor
        for tensor in head.tensors
        if tensor.name.endswith("weight") and tensor.shape == embedding.tensors[0].shape
    ]
    kept = tuple(tensor for tensor in head.tensors if tensor not in twice)
    bare = replace(
        head, tensors=kept, size=sum(each.size for each in kept), parameters=sum(each.elements for each in kept)
    )
    notes = [
        f"The files hold the embedding twice (also as {tensor.name}, {format_size(tensor.size)}): it is loaded once "
        "where both agree."
        for tensor in twice
        if shared.get(tensor.name) is None or shared.get(tensor.name) != shared.get(embedding.tensors[0].name)
    ]
    return tuple(bare if layer is head else layer for layer in layers), ((embedding.name, head.name),), notes


def incomplete(layers: tuple[Layer, ...], tied: tuple[tuple[str, ...], ...], rules: NameRules) -> list[tuple[str, str]]:
    """Layers that the config promises and no file holds."""
    there = {layer.index for layer in layers if layer.kind is LayerKind.DECODER}
    absent = [index for index in range(rules.layers or 0) if index not in there]
    if absent and there:
        listed = ", ".join(str(index) for index in absent[:6]) + (" …" if len(absent) > 6 else "")
        return [
            (
                f"{len(absent)} of {rules.layers} decoder layers have no weights: {listed}.",
                "Download the model again, or mend num_hidden_layers in config.json.",
            )
        ]
    if not tied and not any(layer.kind is LayerKind.HEAD for layer in layers):
        return [(f"The files hold no output head ({rules.head}).", "Choose the complete model.")]
    return []


def unexplained_dtypes(layers: tuple[Layer, ...]) -> list[tuple[str, str]]:
    """Matrices in whole numbers, where the config names no quantisation: a loader would take them at face value."""
    odd = [
        tensor
        for layer in layers
        for tensor in layer.tensors
        if tensor.name.endswith(".weight") and len(tensor.shape) > 1 and not _is_float(tensor.dtype)
    ]
    if not odd:
        return []
    return [
        (
            f"{odd[0].name} is stored as {odd[0].dtype}, and config.json does not say how that stands for weights.",
            "Download config.json of this very version, or choose one that is not quantised.",
        )
    ]


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
