"""Carries weights to where they run by accelerate's hooks, and counts what is carried, here and by the ring."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from layerlight.engine.nesting import own_modules
from layerlight.engine.places import offloaded


@dataclass(slots=True)
class Carried:
    """Totals since they were last reset: bytes brought to where they run, and seconds that took."""

    bytes: int = 0
    seconds: float = 0.0


class CountedWeights(Mapping[str, torch.Tensor]):
    """accelerate's weights for one module, brought to the device by us so that time and bytes are known.

    Files are read on the CPU whatever the device, because safetensors knows fewer devices than torch.
    """

    def __init__(self, loader: Any, prefix: str, device: torch.device, carried: Carried) -> None:
        self.loader = loader
        self._prefix = prefix
        self._device = device
        self._carried = carried

    @property
    def dataset(self) -> CountedWeights:
        """What accelerate's own prefixed map calls the map behind it."""
        return self

    def __getitem__(self, name: str) -> torch.Tensor:
        started = time.perf_counter()
        tensor: torch.Tensor = self.loader[self._prefix + name].to(self._device)
        self._carried.seconds += time.perf_counter() - started
        self._carried.bytes += tensor.numel() * tensor.element_size()
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter([key.removeprefix(self._prefix) for key in self.loader if key.startswith(self._prefix)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def carry_counted(model: torch.nn.Module, layers: tuple[str, ...]) -> dict[str, Carried]:
    """Replaces accelerate's weights maps by counting ones. Returns the counts of each layer that is carried."""
    counts: dict[str, Carried] = {}
    for layer in layers:
        for full, module in own_modules(model, layer, layers):
            for hook in _hooks(module):
                loader = offloaded(hook)
                if loader is None:
                    continue
                loader.device = None
                carried = counts.setdefault(layer, Carried())
                hook.weights_map = CountedWeights(loader, f"{full}.", torch.device(hook.execution_device), carried)
    return counts


def settle(model: torch.nn.Module) -> None:
    """Puts carried weights back to rest after a pass that broke off inside a layer."""
    for name in ("streamed_layers", "staged_layers"):
        brought: Any = getattr(model, name, None)
        if brought is not None:
            brought.settle()
    for module in model.modules():
        for hook in _hooks(module):
            broke_off = hasattr(hook, "tied_pointers_to_remove") and any(
                parameter.device.type != "meta" for parameter in module.parameters(recurse=False)
            )
            if broke_off and offloaded(hook) is not None:
                hook.post_forward(module, None)


def files_on_disk(model: torch.nn.Module) -> set[str]:
    """Paths of the files that carried weights are read from in each pass."""
    loaders = {id(found): found for module in model.modules() for hook in _hooks(module) if (found := offloaded(hook))}
    return {
        entry["safetensors_file"]
        for loader in loaders.values()
        for name, entry in loader.index.items()
        if name not in loader.state_dict and entry.get("safetensors_file")
    }


def _hooks(module: torch.nn.Module) -> tuple[Any, ...]:
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return ()
    return tuple(getattr(hook, "hooks", (hook,)))
