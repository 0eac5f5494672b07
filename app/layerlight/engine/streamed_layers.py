"""Layers that rest on disk and run on the CPU: each pass finds their weights in the ring's buffers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
from torch.utils.hooks import RemovableHandle

from layerlight.core.messages import LoadRequest
from layerlight.engine.disk_weights import BroughtWeight, DiskWeight, Index, is_called, take_over, weights_on_disk
from layerlight.engine.mapped_layers import MappedLayers
from layerlight.engine.nesting import module_of, outer_of
from layerlight.engine.ring.layer_ring import LayerRing
from layerlight.engine.ring.slot import Slot
from layerlight.engine.ring.unit_layout import Layout, UnitLayout, UnitTensor, layout_of
from layerlight.engine.streaming import Carried
from layerlight.engine.towers import towers_of


class RingLayers:
    """Layers that a ring brings ahead of every pass. Only within it their parameters are views of its buffers."""

    kept_as: ClassVar[str]
    """The attribute of the model by which a run finds them."""

    def __init__(
        self,
        model: torch.nn.Module,
        weights: Mapping[str, Sequence[BroughtWeight]],
        layouts: Sequence[Layout],
        ring: LayerRing,
    ) -> None:
        """`weights` of each layer and how they lie in the ring's buffers, in the order of a pass."""
        self._weights = tuple(tuple(each) for each in weights.values())
        self.carried = {layer: Carried() for layer in weights}
        self._layouts, self.ring = tuple(layouts), ring
        self._check: Callable[[], None] = _nothing
        self._held: dict[int, Slot] = {}
        self._hooks: list[RemovableHandle] = []
        setattr(model, self.kept_as, self)
        for unit, (layer, carried) in enumerate(self.carried.items()):
            module = model.get_submodule(layer)
            size = sum(weight.size for weight in self._weights[unit])
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
        layout, weights = self._layouts[unit], self._weights[unit]

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
        self._give(self._held.pop(unit))

    def _give(self, slot: Slot) -> None:
        self.ring.give(slot)


class StreamedLayers(RingLayers):
    """Layers that rest on disk and run on the CPU."""

    kept_as = "streamed_layers"

    def __init__(self, model: torch.nn.Module, weights: Mapping[str, Sequence[DiskWeight]]) -> None:
        """`weights` of each layer, in the order of a pass. Raises what LayerRing raises."""
        self.layouts = tuple(_layout(own) for own in weights.values())
        super().__init__(model, weights, self.layouts, LayerRing(self.layouts))
        self.stored = {weight.full: weight.stored for own in weights.values() for weight in own}
        """Every weight that is streamed, by its full name."""


@contextmanager
def listening(model: Any, check: Callable[[], None]) -> Iterator[None]:
    """While a run of this model lasts, waiting for weights on disk hears its stop; see `StreamedLayers.during`."""
    brought: list[RingLayers | MappedLayers | None]
    brought = [getattr(model, name, None) for name in ("streamed_layers", "staged_layers", "mapped_layers")]
    with ExitStack() as stack:
        for each in brought:
            if each is not None:
                stack.enter_context(each.during(check))
        yield


def stream_from_disk(model: Any, request: LoadRequest, index: Index) -> StreamedLayers | None:
    """Takes layers that rest on disk and run on the CPU over from accelerate; None when there are none.

    Not experts, of which a pass needs the chosen ones alone, nor towers, nor what is mapped already. Raises BrokenModel
    or OSError when a file is no longer what it was, MemoryError when there is no room for the buffers.
    """
    layers = tuple(placement.layer for placement in request.placements)
    apart = {*outer_of(layers), *towers_of(model, layers)}
    on_disk = [each.layer for each in request.placements if each.rests_on == "disk" and each.runs_on == "cpu"]
    there = [layer for layer in on_disk if layer not in apart and is_called(module_of(model, layer))]
    weights = weights_on_disk(model, there, layers, index)
    if not weights:
        return None
    take_over(model, weights, layers)
    return StreamedLayers(model, weights)


def stream(model: torch.nn.Module, layers: Sequence[str], index: Index) -> StreamedLayers:
    """Streams these layers, whose weights are empty, by an index as accelerate keeps it."""
    return StreamedLayers(model, weights_on_disk(model, layers, layers, index))


def _layout(weights: Sequence[DiskWeight]) -> UnitLayout:
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
