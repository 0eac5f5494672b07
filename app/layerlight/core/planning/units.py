"""Units: layers that move together, with what they weigh once loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerlight.core import memory
from layerlight.core.device import CPU, DISK
from layerlight.core.model import Layer, LayerKind, Model, Tensor, TextShape
from layerlight.core.plan import PREFILL_CHUNK
from layerlight.core.planning.runtime import RING_BUFFERS, STAGING_BUFFERS
from layerlight.core.sizing.kv_cache import packed_bytes
from layerlight.core.sizing.stored_format import is_scale, packed_elements
from layerlight.core.sizing.told_bytes import told_cache, told_weights

_KEPT_MODELS = 4
"""Weighings that are kept: a slider plans the same model again and again."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One layer's weights once loaded, in bytes and parameters; `routed` is the part that its experts hold."""

    size: int
    parameters: int
    routed: int
    routed_parameters: int
    quantized: bool
    largest_quantized: int = 0
    """Elements of its largest quantised tensor, which a pass turns back one at a time."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One layer, or all layers that share weights. Sizes are bytes once loaded."""

    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]
    """Own bytes of each layer; a layer that only borrows weights has 0."""
    kv: int
    """The unit's share of the KV cache."""
    weights: tuple[Weights, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def passing(self, rests_on: str, runs_on: str) -> int:
        """Bytes that it needs where it runs beside what rests there; of several units in turn the most counts.

        A tower needs none: no pass over text calls it.
        """
        if rests_on == runs_on or self.layers[0].kind is LayerKind.TOWER:
            return 0
        if rests_on == DISK and runs_on == CPU:  # of experts the pages of the file itself are read
            return 0 if self.layers[0].kind is LayerKind.EXPERTS else RING_BUFFERS * self.size
        return STAGING_BUFFERS * self.size

    @property
    def largest_quantized(self) -> int:
        return max((each.largest_quantized for each in self.weights), default=0)

    def bytes_read(self) -> tuple[int, ...]:
        """Bytes each layer reads in a decode pass: an embedding looks up rows, a tied head reads the whole table."""
        return tuple(
            0 if layer.kind is LayerKind.EMBEDDING else size or (self.size if layer.kind is LayerKind.HEAD else 0)
            for layer, size in zip(self.layers, self.sizes, strict=True)
        )


def units_of(
    model: Model,
    shape: TextShape,
    context: int,
    dtype: str,
    quantization: str | None,
    expands: bool = False,
    kv: str = "",
) -> tuple[Unit, ...]:
    """The model's units in its own order; tied layers stand where the first of them does.

    Where it `expands`, weights stored in fp8 or mxfp4 are loaded in `dtype`; `kv` is what the cache is kept in. What
    the empty model told goes before the formulas.
    """
    told = told_weights(model.told, dtype, quantization)
    weights = {
        layer.name: each if told.get(layer.name, each.size) == each.size else replace(each, size=told[layer.name])
        for layer, each in zip(model.layers, _weighed(model, dtype, quantization, expands), strict=True)
    }
    cache = told_cache(model.told, dtype, context, PREFILL_CHUNK)
    by_name = {layer.name: layer for layer in model.layers}
    group_of = {name: group for group in model.tied for name in group}
    units: list[Unit] = []
    done: set[str] = set()
    for layer in model.layers:
        if layer.name in done:
            continue
        together = tuple(by_name[name] for name in group_of.get(layer.name, (layer.name,)) if name in by_name)
        done.update(each.name for each in together)
        kept = (
            cache[layer.index] if layer.index < len(cache) else memory.kv_bytes(shape, layer.index, context, dtype)
            for layer in together
            if layer.index is not None and layer.kind is LayerKind.DECODER
        )
        in_cache = sum(packed_bytes(size, dtype) if kv else size for size in kept)
        units.append(_unit(together, tuple(weights[each.name] for each in together), in_cache))
    return tuple(units)


def _unit(layers: tuple[Layer, ...], weights: tuple[Weights, ...], kv: int) -> Unit:
    sizes = tuple(each.size for each in weights)
    return Unit(layers, sizes, kv, weights)


# -- weighing: the same for every context and every limit, and long where each expert is a tensor ----------------------

_kept: list[tuple[Model, tuple[str, str | None, bool], tuple[Weights, ...]]] = []


def _weighed(model: Model, dtype: str, quantization: str | None, expands: bool) -> tuple[Weights, ...]:
    """What each layer weighs. The last few answers are kept, told apart by identity: comparing models is as slow."""
    loaded = (dtype, quantization, expands)
    for kept, kept_loaded, weights in _kept:
        if kept is model and kept_loaded == loaded:
            return weights
    weights = tuple(_weights(layer, model.shape, dtype, quantization, expands) for layer in model.layers)
    _kept.append((model, loaded, weights))
    del _kept[:-_KEPT_MODELS]
    return weights


def _weights(layer: Layer, shape: TextShape | None, dtype: str, quantization: str | None, expands: bool) -> Weights:
    size = parameters = routed = routed_parameters = quantized = 0
    model_type = shape.model_type if shape else ""
    names = frozenset(tensor.name for tensor in layer.tensors if is_scale(tensor))
    for tensor in layer.tensors:
        own = memory.loaded_tensor_size(tensor, layer, dtype, quantization, expands, model_type)
        packed = packed_elements(tensor, names) if names else None
        elements = packed or tensor.elements
        size += own
        parameters += elements
        if _is_routed(tensor, shape):
            routed += own
            routed_parameters += elements
        if packed or (quantization is not None and memory.quantizable(tensor, layer, model_type)):
            quantized = max(quantized, elements)
    return Weights(size, parameters, routed, routed_parameters, quantized > 0, quantized)


def _is_routed(tensor: Tensor, shape: TextShape | None) -> bool:
    """Whether a router chooses it for some tokens only: an expert's own tensor, or those of all experts in one."""
    if shape is None or not shape.experts:
        return False
    return ".experts." in tensor.name or (len(tensor.shape) == 3 and tensor.shape[0] == shape.experts)
