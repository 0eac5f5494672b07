"""accelerate's hooks, mended: the plan's device runs what is carried, and tied weights are found on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from layerlight.core.messages import LoadRequest
from layerlight.engine.checking import CheckedModel
from layerlight.engine.device_map import experts_staying
from layerlight.engine.nesting import outer_of
from layerlight.engine.places import offloaded, place_name


def run_on_main(model: Any, checked: CheckedModel) -> None:
    """Makes layers that rest in RAM or on disk run on the plan's device.

    from_pretrained lets accelerate take the first of a *set* of accelerators, whose order changes from process to
    process; where it took another one, the model is dispatched again, weights staying where they are.
    """
    hook = getattr(model, "_hf_hook", None)
    if hook is None or place_name(hook.execution_device) == place_name(checked.main):
        return
    from accelerate import dispatch_model
    from accelerate.hooks import remove_hook_from_submodules

    loader = loader_of(model)
    remove_hook_from_submodules(model)
    model.tie_weights()
    dispatch_model(
        model,
        dict(checked.device_map),
        # by its name: only then accelerate leaves what rests in RAM to the CPU
        main_device="cpu" if checked.main == "cpu" else torch.device(checked.main),
        offload_index=dict(loader.index) if loader is not None and loader.index else None,
        skip_keys=model._skip_keys_device_placement,
    )


def join_experts(model: Any, request: LoadRequest) -> None:
    """Joins layers to experts that rest apart: a layer's inputs go where it runs, as its parts alone would not take
    them; experts that stay in RAM compute there, and give back where they were called from."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module

    if not hasattr(model, "_hf_hook"):
        return  # all of it rests on one device
    runs = {placement.layer: placement.runs_on for placement in request.placements}
    for outer in set(outer_of(runs).values()):
        inputs = AlignDevicesHook(torch.device(runs[outer]), skip_keys=model._skip_keys_device_placement)
        add_hook_to_module(model.get_submodule(outer), inputs, append=True)
    cpu = torch.device("cpu")
    on_disk = {placement.layer for placement in request.placements if placement.rests_on == "disk"}
    for layer in experts_staying(request):
        for module in model.get_submodule(layer).modules():
            hook = getattr(module, "_hf_hook", None)
            if hook is None:
                continue
            if layer in on_disk:
                hook.execution_device, hook.io_same_device = cpu, True
            else:
                remove_hook_from_module(module)  # puts the weights back where they lay: in RAM
                add_hook_to_module(module, AlignDevicesHook(cpu, io_same_device=True))


def tie_on_disk(model: Any) -> None:
    """Finds tied weights on disk by their other name too.

    transformers lists both names only when it reads safetensors in place, not when it has written weights anew.
    """
    loader = loader_of(model)
    for name, source in (getattr(model, "all_tied_weights_keys", None) or {}).items():
        if loader is not None and source in loader.index and name not in loader.index:
            loader.index[name] = loader.index[source]
            loader.all_keys.append(name)


def index_of(model: Any) -> Mapping[str, Mapping[str, str]]:
    """Where that loader finds what is on disk, by full name: `safetensors_file` and `weight_name`."""
    loader = loader_of(model)
    return {} if loader is None else loader.index


def loader_of(model: Any) -> Any:
    """The one loader behind all of a model's hooks, or None when nothing is carried."""
    found = (offloaded(getattr(inner, "_hf_hook", None)) for inner in model.modules())
    return next((loader for loader in found if loader is not None), None)
