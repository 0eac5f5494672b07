"""Layers that rest in RAM or on disk and run on an accelerator: passes find their weights in the device's buffers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from layerlight.core.device import CPU, DISK, format_size
from layerlight.core.machines.local_memory import ram
from layerlight.core.messages import LoadRequest
from layerlight.core.planning.runtime import STAGING_BUFFERS
from layerlight.core.sizing.locked_memory import lockable
from layerlight.engine.disk_weights import DiskWeight, is_called, weights_on_disk
from layerlight.engine.nesting import module_of, own_modules
from layerlight.engine.quantizing import is_quantized
from layerlight.engine.ring.layer_ring import LayerRing
from layerlight.engine.ring.slot import Slot
from layerlight.engine.ring.unit_layout import StoredTensor, UnitTensor
from layerlight.engine.staging.device_landing import DeviceBuffer, DeviceLanding
from layerlight.engine.staging.device_layout import DeviceLayout, HeldTensor, layout_from_files, layout_from_ram
from layerlight.engine.staging.lanes import Lanes, lanes_of
from layerlight.engine.staging.locked_weights import LockedWeights
from layerlight.engine.streamed_layers import RingLayers
from layerlight.engine.towers import towers_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldWeight:
    """A parameter's place in its module, what stands there while the layer rests, and its bytes in RAM."""

    full: str
    holder: dict[str, Any]
    name: str
    resting: torch.nn.Parameter
    """Empty; of the dtype and shape that it is computed with."""
    held: HeldTensor

    @property
    def size(self) -> int:
        return self.held.size


Weights = Mapping[str, Sequence[DiskWeight] | Sequence[HeldWeight]]
"""Of each layer, in the order of a pass: all in files, or all in RAM."""


class StagedLayers(RingLayers):
    """Layers of a model that are copied to a device ahead of every pass, beside what computes there."""

    kept_as = "staged_layers"

    def __init__(
        self,
        model: torch.nn.Module,
        weights: Weights,
        device: torch.device,
        lanes: Lanes | None = None,
        locked: LockedWeights | None = None,
    ) -> None:
        """`lanes`: the device's own, else those it is found to have; `locked` are unlocked at the end.

        Raises what LayerRing raises, torch.OutOfMemoryError when the device has no room for the buffers.
        """
        lanes = lanes_of(device) if lanes is None else lanes
        layouts = tuple(_layout(own) for own in weights.values())
        self.landing = DeviceLanding(device, lanes, layouts)
        self._locked = locked
        super().__init__(model, weights, layouts, LayerRing(layouts, STAGING_BUFFERS, landing=self.landing))
        every = [weight for own in weights.values() for weight in own]
        from_files = (each for each in every if isinstance(each, DiskWeight))
        self.stored: dict[str, StoredTensor] = {each.full: each.stored for each in from_files}
        """Weights that come from files, by full name."""
        self.held: dict[str, HeldTensor] = {each.full: each.held for each in every if isinstance(each, HeldWeight)}
        """Weights that come from RAM, by full name."""

    def close(self) -> None:
        """Ends the threads, and lets go of the buffers and of what is page-locked; the layers can't run any more."""
        super().close()
        if self.ring.ended:
            self.landing.close()
            if self._locked is not None:
                self._locked.close()

    def _give(self, slot: Slot) -> None:
        if isinstance(slot.buffer, DeviceBuffer):
            slot.buffer.leave()
        super()._give(slot)


def stage(model: Any, request: LoadRequest, loader: Any) -> StagedLayers | None:
    """Takes layers that rest in RAM or on disk and run on an accelerator over from accelerate; None without any.

    `loader` knows their weights, as accelerate keeps them. What a library has quantised stays with accelerate's
    hooks, and towers, which no pass over text calls.
    Raises BrokenModel or OSError when a file is no longer what it was, torch.OutOfMemoryError or MemoryError when there
    is no room for the buffers.
    """
    layers = tuple(each.layer for each in request.placements)
    carried = [each for each in request.placements if each.rests_on in (CPU, DISK) and each.runs_on not in (CPU, DISK)]
    towers = towers_of(model, layers)
    there = [each.layer for each in carried if each.layer not in towers and _is_plain(model, each.layer, layers)]
    if not there or loader is None:
        return None
    device = torch.device(carried[0].runs_on)
    on_disk = weights_on_disk(model, there, layers, loader.index)
    in_ram = {layer: found for layer in there if (found := _found_in_ram(model, layer, layers, loader.state_dict))}
    for layer in (*on_disk, *in_ram):
        _take_over(model, layer, layers, device)
    memory = ram()
    locked = LockedWeights(device, lockable(memory.total, memory.free))
    weights: dict[str, Sequence[DiskWeight] | Sequence[HeldWeight]] = {}
    for layer in there:
        if layer in on_disk:
            weights[layer] = on_disk[layer]
        elif layer in in_ram:
            weights[layer] = _held(in_ram[layer], loader.state_dict, locked)
    for own in weights.values():
        for weight in own:
            weight.holder[weight.name] = weight.resting
    if not weights:
        return None
    with ExitStack() as undo:
        undo.callback(locked.close)
        staged = StagedLayers(model, weights, device, locked=locked)
        undo.pop_all()
    _tell(staged, device, locked)
    return staged


@dataclass(frozen=True, slots=True)
class _Found:
    """A parameter of a layer that accelerate keeps in RAM."""

    full: str
    holder: dict[str, Any]
    name: str
    resting: torch.nn.Parameter


def _is_plain(model: torch.nn.Module, layer: str, layers: Sequence[str]) -> bool:
    if not is_called(module_of(model, layer)):
        return False
    return not any(
        is_quantized(module) or any(type(each) is not torch.nn.Parameter for each in module.parameters(recurse=False))
        for _, module in own_modules(model, layer, layers)
    )


def _found_in_ram(
    model: torch.nn.Module, layer: str, layers: Sequence[str], state: Mapping[str, torch.Tensor]
) -> tuple[_Found, ...]:
    """All of its parameters; nothing where one lies elsewhere or in another shape."""
    empty = list(_empty(model, layer, layers))
    found = tuple(each for each in empty if _is_like(state.get(each.full), each.resting))
    return found if len(found) == len(empty) else ()


def _empty(model: torch.nn.Module, layer: str, layers: Sequence[str]) -> Iterator[_Found]:
    for prefix, module in own_modules(model, layer, layers):
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.device.type == "meta":
                yield _Found(f"{prefix}.{name}", module._parameters, name, parameter)


def _is_like(tensor: torch.Tensor | None, resting: torch.Tensor) -> bool:
    return (
        tensor is not None
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and (tensor.dtype, tensor.shape) == (resting.dtype, resting.shape)
    )


def _held(found: Sequence[_Found], state: dict[str, torch.Tensor], locked: LockedWeights) -> tuple[HeldWeight, ...]:
    held = locked.hold([state[each.full] for each in found])
    for each in found:
        state[each.full] = each.resting  # what lay there before is held, or copied
    return tuple(
        HeldWeight(each.full, each.holder, each.name, each.resting, tensor)
        for each, tensor in zip(found, held, strict=True)
    )


def _take_over(model: Any, layer: str, layers: Sequence[str], device: torch.device) -> None:
    """Takes accelerate's hooks off this layer but for the one that brings inputs to the device."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module

    for _, module in own_modules(model, layer, layers):
        remove_hook_from_module(module)  # puts buffers, too, where they lay before they were dispatched
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    inputs = AlignDevicesHook(skip_keys=model._skip_keys_device_placement)
    add_hook_to_module(module_of(model, layer), inputs)
    inputs.execution_device = device  # only now: it would ask for the weights that are not there


def _layout(weights: Sequence[DiskWeight] | Sequence[HeldWeight]) -> DeviceLayout:
    held = [each.held for each in weights if isinstance(each, HeldWeight)]
    if held:
        return layout_from_ram(held)
    return layout_from_files(
        [
            UnitTensor(each.stored, each.resting.dtype, tuple(each.resting.shape))
            for each in weights
            if isinstance(each, DiskWeight)
        ]
    )


def _tell(staged: StagedLayers, device: torch.device, locked: LockedWeights) -> None:
    log.info(
        "%d layers are copied to %s ahead of every pass, through %s there; %s of RAM are page-locked for it%s",
        len(staged.carried),
        device,
        format_size(staged.ring.size),
        format_size(locked.size + sum(each.size for each in staged.landing.passages if each.pinned)),
        "" if staged.landing.pinned else "; the rest is copied from ordinary memory, which is slower",
    )
