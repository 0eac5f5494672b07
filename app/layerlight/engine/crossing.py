"""What all layers are given alike, such as cosines, sines and masks, crosses to each device once in a pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from layerlight.core.messages import LoadRequest
from layerlight.engine.disk_weights import is_called
from layerlight.engine.nesting import module_of, outer_of


class Crossing:
    """Copies of named inputs on other devices, each kept as long as what it was made of lives."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, torch.device], tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def brought(self, given: Any, device: torch.device) -> Any:
        """The same with tensors on this device; nothing but tensors and tuples of them is looked at."""
        if type(given) is tuple:
            return tuple(self.brought(each, device) for each in given)
        if not isinstance(given, torch.Tensor) or given.device == device:
            return given
        key = (id(given), device)
        known = self._kept.get(key)
        if known is not None and known[0]() is given:
            return known[1]
        there = given.to(device)
        self._kept[key] = (weakref.ref(given, lambda _gone: self._kept.pop(key, None)), there)
        return there


def cross_once(model: torch.nn.Module, request: LoadRequest) -> None:
    """Has layers on several devices share what crosses to them: accelerate's hooks would copy it for every layer."""
    runs = {placement.layer: placement.runs_on for placement in request.placements}
    if len(set(runs.values())) < 2:
        return
    crossing = Crossing()
    inside = outer_of(runs)
    for layer, place in runs.items():
        module = module_of(model, layer)
        if layer not in inside and is_called(module):
            module.register_forward_pre_hook(_entering(crossing, torch.device(place)), with_kwargs=True)


Called = tuple[tuple[Any, ...], dict[str, Any]]
"""A module's inputs, and those that are named."""


def _entering(crossing: Crossing, device: torch.device) -> Callable[..., Called]:
    def enter(_module: object, inputs: tuple[Any, ...], named: dict[str, Any]) -> Called:
        return inputs, {name: crossing.brought(each, device) for name, each in named.items()}

    return enter
