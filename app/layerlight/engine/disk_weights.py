"""Weights that lie on disk: in which files and where; and accelerate's hooks taken off those we bring ourselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from layerlight.core.inspecting.safetensors_header import read_placed_tensors
from layerlight.engine.nesting import outer_of, own_modules
from layerlight.engine.places import offloaded, place_of_execution
from layerlight.engine.ring.unit_layout import StoredTensor

Index = Mapping[str, Mapping[str, str]]
"""By full name of a weight its `safetensors_file` and, if it has another one there, its `weight_name`."""


class BroughtWeight(Protocol):
    """A parameter that is only there while a pass needs it."""

    @property
    def full(self) -> str: ...
    @property
    def holder(self) -> dict[str, Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def resting(self) -> torch.nn.Parameter: ...
    @property
    def size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DiskWeight:
    """A parameter's place in its module, what stands there while the layer rests, and where it is stored."""

    full: str
    holder: dict[str, Any]
    name: str
    resting: torch.nn.Parameter
    """Empty; of the dtype and shape that it is computed with."""
    stored: StoredTensor

    @property
    def size(self) -> int:
        """Bytes once loaded."""
        return self.resting.numel() * self.resting.element_size()

    @property
    def mappable(self) -> bool:
        """Whether its bytes in the file are what is computed with."""
        return self.stored.dtype == self.resting.dtype and self.stored.begin % self.stored.dtype.itemsize == 0


def weights_on_disk(
    model: torch.nn.Module, there: Sequence[str], layers: Sequence[str], index: Index
) -> dict[str, tuple[DiskWeight, ...]]:
    """Those of each of the layers `there` of which all lie in safetensors files, shaped alike.

    Raises BrokenModel when a file is no longer what it was.
    """
    headers: dict[str, dict[str, StoredTensor]] = {}
    found = {}
    for layer in there:
        empty = list(_empty_parameters(model, layer, layers))
        own = [
            DiskWeight(full, module._parameters, name, parameter, stored)
            for full, module, name, parameter in empty
            if (stored := _stored(index.get(full, {}), full, headers)) is not None
            and stored.size // stored.dtype.itemsize == parameter.numel()
        ]
        if own and len(own) == len(empty):
            found[layer] = tuple(own)
    return found


def is_called(module: torch.nn.Module) -> bool:
    """Whether a pass calls this module: of a mere list it calls the members, so that the list never hears of it."""
    return type(module).forward is not torch.nn.Module.forward


def take_over(model: Any, weights: Mapping[str, Sequence[DiskWeight]], layers: Sequence[str]) -> None:
    """Takes accelerate's hooks off these layers; off the whole model where all of it runs on the CPU and nothing is
    left for them to carry. What layers inside others make goes back to where it was asked for; what others make stays,
    for the next layer may run here too."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module

    ours = {id(each.holder) for own in weights.values() for each in own}
    if not any(_works_on(module) for module in model.modules() if id(module._parameters) not in ours):
        for module in model.modules():
            remove_hook_from_module(module)
        return
    inside = outer_of(layers)
    for layer in weights:
        for _, module in own_modules(model, layer, layers):
            remove_hook_from_module(module)
        inputs = AlignDevicesHook(io_same_device=layer in inside, skip_keys=model._skip_keys_device_placement)
        add_hook_to_module(model.get_submodule(layer), inputs)
        inputs.execution_device = torch.device("cpu")  # only now: it would ask for the weights that are not there


def _works_on(module: torch.nn.Module) -> bool:
    """Whether a module's hook carries weights, or takes inputs to another device than the CPU."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return False
    carries = offloaded(hook) is not None and any(True for _ in module.parameters(recurse=False))
    return carries or place_of_execution(module) != "cpu"


def _empty_parameters(
    model: torch.nn.Module, layer: str, layers: Sequence[str]
) -> Iterator[tuple[str, torch.nn.Module, str, torch.nn.Parameter]]:
    for prefix, module in own_modules(model, layer, layers):
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.device.type == "meta":
                yield f"{prefix}.{name}", module, name, parameter


def _stored(entry: Mapping[str, str], full: str, headers: dict[str, dict[str, StoredTensor]]) -> StoredTensor | None:
    path = entry.get("safetensors_file")
    if not path:
        return None
    if path not in headers:
        headers[path] = {
            tensor.name: StoredTensor(path, begin, tensor.size, getattr(torch, tensor.dtype))
            for begin, tensor in read_placed_tensors(Path(path))
            if isinstance(getattr(torch, tensor.dtype, None), torch.dtype)
        }
    return headers[path].get(entry.get("weight_name", full))
