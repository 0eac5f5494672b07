"""Weights that bitsandbytes quantised before they were saved: in which format, and what of the files is no weight."""

from __future__ import annotations

from layerlight.core.model import Layer, Model, Tensor

_STATE = ".quant_state.bitsandbytes__"
_OFFSET = 4
"""Bytes of the mean of quantised scales, which lies inside the saved description."""


def stored_format(model: Model) -> str | None:
    """`nf4`, `fp4`, `int8`, or with `-double` for scales that are quantised too; None for any other model."""
    if model.quantization != "bitsandbytes":
        return None
    for layer in model.layers:
        for tensor in layer.tensors:
            weight, state, name = tensor.name.partition(_STATE)
            if state:
                double = any(each.name == f"{weight}.nested_absmax" for each in layer.tensors)
                return f"{name}-double" if double else name
            if tensor.name.endswith(".SCB"):
                return "int8"
    return None


def described(tensor: Tensor, layer: Layer) -> int | None:
    """Bytes that a description of a quantised weight takes once loaded, which is next to nothing; None for others."""
    if tensor.name.endswith(".weight_format"):
        return 0
    weight, state, _ = tensor.name.partition(_STATE)
    if not state:
        return None
    return _OFFSET if any(each.name == f"{weight}.nested_absmax" for each in layer.tensors) else 0


def is_scale(tensor: Tensor) -> bool:
    """Whether it is a scale or table of a quantised weight: these keep the dtype that they are saved in."""
    return tensor.name.endswith((".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB"))


def packed_elements(tensor: Tensor, names: frozenset[str]) -> int | None:
    """Elements of a weight that lies quantised among tensors of these names; None for one that does not."""
    if f"{tensor.name}.absmax" in names:
        return 2 * tensor.elements
    if tensor.name.endswith(".weight") and f"{tensor.name.removesuffix('weight')}SCB" in names:
        return tensor.elements
    return None
