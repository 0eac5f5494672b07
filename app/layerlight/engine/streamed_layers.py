"""Layers that rest on disk and run on the CPU: each pass finds their weights in the ring's buffers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from layerlight.core.inspecting.safetensors_header import read_placed_tensors
from layerlight.core.messages import LoadRequest
from layerlight.engine.dispatching import loader_of
from layerlight.engine.nesting import outer_of, own_modules
from layerlight.engine.places import offloaded, place_of_execution
from layerlight.engine.ring.layer_ring import BUFFERS, LayerRing
from layerlight.engine.ring.slot import Slot
from layerlight.engine.ring.unit_layout import StoredTensor, UnitLayout, UnitTensor, layout_of
from layerlight.engine.streaming import Carried


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter's place in its module, what stands there while the layer rests, and where it is stored."""

    full: str
    holder: dict[str, Any]
    name: str
    resting: torch.nn.Parameter
    stored: StoredTensor


class StreamedLayers:
    """Layers of a model that are read ahead of every pass. Their parameters are views of buffers only within it."""

    def __init__(self, model: torch.nn.Module, weights: Mapping[str, Sequence[_Weight]]) -> None:
        """`weights` of each layer, in the order of a pass. Raises what LayerRing raises."""
        self._weights = tuple(tuple(each) for each in weights.values())
        self.carried = {layer: Carried() for layer in weights}
        self.stored = {weight.full: weight.stored for own in self._weights for weight in own}
        """Every weight that is streamed, by its full name."""
        self.layouts = tuple(_layout(own) for own in self._weights)
        self.ring = LayerRing(self.layouts, buffers=BUFFERS + bool(outer_of(weights)))
        self._check: Callable[[], None] = _nothing
        self._held: dict[int, Slot] = {}
        self._hooks: list[RemovableHandle] = []
        model.streamed_layers = self  # type: ignore[assignment]
        for unit, (layer, carried) in enumerate(self.carried.items()):
            module = model.get_submodule(layer)
            size = sum(weight.resting.numel() * weight.resting.element_size() for weight in self._weights[unit])
            self._hooks.append(module.register_forward_pre_hook(self._entering(unit, size, carried), prepend=True))
            self._hooks.append(module.register_forward_hook(self._leaving(unit)))

    @contextmanager
    def during(self, check: Callable[[], None]) -> Iterator[None]:
        """While a run lasts, `check` is called wherever it waits, and may raise; then all is at rest again."""
        self._check = check
        self.ring.rewind()
        try:
            yield
        finally:
            self._check = _nothing
            self.settle()

    def settle(self) -> None:
        """Puts to rest what a pass left that broke off, and has the ring begin where the next one does."""
        for unit in tuple(self._held):
            self._rest(unit)
        self.ring.rewind()

    def close(self) -> None:
        """Ends the ring; the layers can't run any more."""
        for unit in tuple(self._held):
            self._rest(unit)
        while self._hooks:
            self._hooks.pop().remove()
        self.ring.close()

    def _entering(self, unit: int, size: int, carried: Carried) -> Callable[..., None]:
        layout, weights = self.layouts[unit], self._weights[unit]

        def enter(*_unused: object) -> None:
            started = time.perf_counter()
            slot = self.ring.take(unit, self._check)
            carried.seconds += time.perf_counter() - started
            carried.bytes += size
            self._held[unit] = slot
            for weight, view in zip(weights, slot.views(layout), strict=True):
                weight.holder[weight.name] = view

        return enter

    def _leaving(self, unit: int) -> Callable[..., Any]:
        def leave(_module: object, _inputs: object, output: Any) -> Any:
            kept = _kept(output, self._held[unit])
            self._rest(unit)
            return kept

        return leave

    def _rest(self, unit: int) -> None:
        for weight in self._weights[unit]:
            weight.holder[weight.name] = weight.resting
        self.ring.give(self._held.pop(unit))


@contextmanager
def listening(model: Any, check: Callable[[], None]) -> Iterator[None]:
    """While a run of this model lasts, waiting for weights on disk hears its stop; see `StreamedLayers.during`."""
    streamed: StreamedLayers | None = getattr(model, "streamed_layers", None)
    if streamed is None:
        yield
        return
    with streamed.during(check):
        yield


def stream_from_disk(model: Any, request: LoadRequest) -> StreamedLayers | None:
    """Takes layers that rest on disk and run on the CPU over from accelerate; None when there are none.

    Experts stay with accelerate, whose weights are the file's own pages: of those only the chosen ones are read. Where
    nothing is left for accelerate's hooks to do, they all go. Raises BrokenModel or OSError when a file is no
    longer what it was, MemoryError when there is no room for the buffers.
    """
    layers = tuple(placement.layer for placement in request.placements)
    on_disk = [each.layer for each in request.placements if each.rests_on == "disk" and each.runs_on == "cpu"]
    there = [layer for layer in on_disk if layer not in outer_of(layers)]
    loader = loader_of(model)
    weights = {} if loader is None else _weights(model, there, layers, loader.index)
    if not weights:
        return None
    _take_over(model, weights, layers)
    return StreamedLayers(model, weights)


def stream(model: torch.nn.Module, layers: Sequence[str], index: Mapping[str, Mapping[str, str]]) -> StreamedLayers:
    """Streams these layers, whose weights are empty, by an index as accelerate keeps it: file and name by weight."""
    return StreamedLayers(model, _weights(model, layers, layers, index))


def _weights(
    model: torch.nn.Module, there: Sequence[str], layers: Sequence[str], index: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[_Weight, ...]]:
    """Those of each of the layers that can be streamed: all of its weights lie in safetensors files, shaped alike."""
    headers: dict[str, dict[str, StoredTensor]] = {}
    found = {}
    for layer in there:
        own = [
            _Weight(full, module._parameters, name, parameter, stored)
            for full, module, name, parameter in _empty_parameters(model, layer, layers)
            if (stored := _stored(index.get(full, {}), full, headers)) is not None
            and stored.size // stored.dtype.itemsize == parameter.numel()
        ]
        if own and len(own) == sum(1 for _ in _empty_parameters(model, layer, layers)):
            found[layer] = tuple(own)
    return found


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


def _take_over(model: Any, weights: Mapping[str, Sequence[_Weight]], layers: Sequence[str]) -> None:
    """Takes accelerate's hooks off these layers; off the whole model where all of it runs on the CPU and nothing is
    left for them to carry."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module

    streamed = {id(each.holder) for own in weights.values() for each in own}
    if not any(_works_on(module) for module in model.modules() if id(module._parameters) not in streamed):
        for module in model.modules():
            remove_hook_from_module(module)
        return
    for layer in weights:
        for _, module in own_modules(model, layer, layers):
            remove_hook_from_module(module)
        inputs = AlignDevicesHook(io_same_device=True)
        add_hook_to_module(model.get_submodule(layer), inputs)
        inputs.execution_device = torch.device("cpu")  # only now: it would ask for the weights that are not there


def _works_on(module: torch.nn.Module) -> bool:
    """Whether a module's hook carries weights, or takes inputs to another device than the CPU."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return False
    carries = offloaded(hook) is not None and any(True for _ in module.parameters(recurse=False))
    return carries or place_of_execution(module) != "cpu"


def _layout(weights: Sequence[_Weight]) -> UnitLayout:
    return layout_of([UnitTensor(each.stored, each.resting.dtype, tuple(each.resting.shape)) for each in weights])


def _kept(output: Any, slot: Slot) -> Any:
    """The same output; what is a view of the buffer is copied, because others come there."""
    if isinstance(output, torch.Tensor):
        return output.clone() if slot.buffer.holds(output.data_ptr()) else output
    if type(output) in (tuple, list):
        return type(output)(_kept(each, slot) for each in output)
    return output


def _nothing() -> None:
    pass
