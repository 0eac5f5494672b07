"""Units: layers that move together, with what they weigh once loaded."""

from __future__ import annotations

from dataclasses import dataclass

from layerlight.core import memory
from layerlight.core.model import Layer, LayerKind, Model, TextShape


@dataclass(frozen=True, slots=True)
class Unit:
    """One layer, or all layers that share weights. Sizes are bytes once loaded."""

    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]
    """Own bytes of each layer; a layer that only borrows weights has 0."""
    kv: int
    """The unit's share of the KV cache."""
    tensor: int
    """Bytes of the largest tensor: the room that carrying it needs where it runs."""

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def bytes_read(self) -> tuple[int, ...]:
        """Bytes each layer reads in a decode pass: an embedding looks up rows, a tied head reads the whole table."""
        return tuple(
            0 if layer.kind is LayerKind.EMBEDDING else size or (self.size if layer.kind is LayerKind.HEAD else 0)
            for layer, size in zip(self.layers, self.sizes, strict=True)
        )


def units_of(model: Model, shape: TextShape, context: int, dtype: str, quantization: str | None) -> tuple[Unit, ...]:
    """The model's units in its own order; tied layers stand where the first of them does."""
    by_name = {layer.name: layer for layer in model.layers}
    group_of = {name: group for group in model.tied for name in group}
    units: list[Unit] = []
    done: set[str] = set()
    for layer in model.layers:
        if layer.name in done:
            continue
        together = tuple(by_name[name] for name in group_of.get(layer.name, (layer.name,)) if name in by_name)
        done.update(each.name for each in together)
        units.append(_unit(together, shape, context, dtype, quantization))
    return tuple(units)


def _unit(layers: tuple[Layer, ...], shape: TextShape, context: int, dtype: str, quantization: str | None) -> Unit:
    tensors = [
        memory.loaded_tensor_size(tensor, layer, dtype, quantization) for layer in layers for tensor in layer.tensors
    ]
    return Unit(
        layers,
        tuple(memory.loaded_size(layer, dtype, quantization) for layer in layers),
        sum(memory.kv_bytes(shape, layer.index, context, dtype) for layer in layers if layer.index is not None),
        max(tensors, default=0),
    )
