"""Layers on disk of which a pass needs little: pages of their file, those of chosen experts or looked-up rows alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from layerlight.core.messages import LoadRequest
from layerlight.engine.disk_weights import DiskWeight, Index, is_called, take_over, weights_on_disk
from layerlight.engine.nesting import module_of, outer_of
from layerlight.engine.paged_files import PagedFiles, Range
from layerlight.engine.ring.unit_layout import StoredTensor
from layerlight.engine.streaming import Carried


@dataclass(frozen=True, slots=True)
class PartedWeight:
    """A parameter that is a view of its file, of so many equal parts one after another: experts, or rows."""

    stored: StoredTensor
    parts: int

    def ranges(self, chosen: Sequence[int] | None) -> Iterator[Range]:
        """Where the chosen parts lie, neighbours together; all of it for None, or where there are no parts."""
        size = self.stored.size // self.parts
        for first, last in _runs(range(self.parts) if chosen is None or self.parts == 1 else chosen):
            yield self.stored.path, self.stored.begin + first * size, self.stored.begin + (last + 1) * size


class MappedLayers:
    """Layers whose parameters are views of their files. Each pass has what it needs of them read, at once."""

    def __init__(self, model: torch.nn.Module, weights: Mapping[str, Sequence[DiskWeight]]) -> None:
        """`weights` of each layer. Raises OSError when a file can't be opened."""
        self.carried = {layer: Carried() for layer in weights}
        self.stored = {weight.full: weight.stored for own in weights.values() for weight in own}
        """Every weight that is mapped, by its full name."""
        self.files = PagedFiles([stored.path for stored in self.stored.values()])
        self._check: Callable[[], None] = _nothing
        self._hooks: list[RemovableHandle] = []
        model.mapped_layers = self  # type: ignore[assignment]
        for layer, own in weights.items():
            module = model.get_submodule(layer)
            for weight in own:
                view = self.files.view(weight.stored, weight.resting.shape)
                weight.holder[weight.name] = torch.nn.Parameter(view, requires_grad=False)
            if is_called(module):
                self._watch(module, [PartedWeight(each.stored, _parts(module, each, own)) for each in own], layer)

    @contextmanager
    def during(self, check: Callable[[], None]) -> Iterator[None]:
        """While a run lasts, `check` is called wherever it waits, and may raise."""
        self._check = check
        try:
            yield
        finally:
            self._check = _nothing

    def close(self) -> None:
        """Ends the threads; the views last as long as the model."""
        while self._hooks:
            self._hooks.pop().remove()
        self.files.close()

    def _watch(self, module: torch.nn.Module, weights: Sequence[PartedWeight], layer: str) -> None:
        carried, brought = self.carried[layer], list[Range]()
        parts = max(each.parts for each in weights)

        def enter(_module: object, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            started = time.perf_counter()
            chosen = chosen_parts((*inputs, *named.values()), parts)
            brought[:] = [each for weight in weights for each in weight.ranges(chosen)]
            self.files.bring(brought, self._check)
            carried.bytes += sum(end - begin for _, begin, end in brought)
            carried.seconds += time.perf_counter() - started

        def leave(*_unused: object) -> None:
            self.files.let_go(brought)

        self._hooks.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
        self._hooks.append(module.register_forward_hook(leave))


def map_from_disk(model: Any, request: LoadRequest, index: Index) -> MappedLayers | None:
    """Takes experts and tables that rest on disk and run on the CPU over from accelerate; None when there are none.

    Where the system keeps room for all of a mapped file, or their bytes are not what is computed with, they stay.
    Raises BrokenModel or OSError when a file is no longer what it was.
    """
    if sys.platform == "win32":
        return None
    layers = tuple(placement.layer for placement in request.placements)
    inside = outer_of(layers)
    there = [
        each.layer
        for each in request.placements
        if (each.rests_on, each.runs_on) == ("disk", "cpu")
        and (each.layer in inside or isinstance(module_of(model, each.layer), torch.nn.Embedding))
    ]
    found = weights_on_disk(model, there, layers, index)
    weights = {layer: own for layer, own in found.items() if all(each.mappable for each in own)}
    if not weights:
        return None
    take_over(model, weights, layers)
    return MappedLayers(model, weights)


def chosen_parts(inputs: Sequence[Any], parts: int) -> tuple[int, ...] | None:
    """What the router chose or which rows are looked up, in order: the whole numbers among the inputs.

    None where there are none: then all is used.
    """
    for each in inputs:
        if isinstance(each, torch.Tensor) and each.dtype in (torch.int64, torch.int32) and each.dim() in (1, 2):
            return tuple(part for part in torch.unique(each).tolist() if 0 <= part < parts)
    return None


def _parts(module: torch.nn.Module, weight: DiskWeight, own: Sequence[DiskWeight]) -> int:
    """Rows of a table; of experts their number, the length that all fused weights of the layer begin with."""
    first = int(weight.resting.shape[0]) if weight.resting.dim() > 1 else 0
    if isinstance(module, torch.nn.Embedding):
        return first or 1
    lengths = {each.resting.shape[0] for each in own if each.resting.dim() == 3}
    return first if lengths == {first} else 1


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of neighbours, of numbers in order."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _nothing() -> None:
    pass
