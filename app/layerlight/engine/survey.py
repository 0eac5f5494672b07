"""torch's devices, RAM and disk → Machine. What can't be read is unknown, and nothing here is ever fatal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from layerlight.core.device import Device, Machine
from layerlight.core.folders import own_folders
from layerlight.core.machines.local_memory import disk, ram
from layerlight.engine.accelerators import describe, find_accelerators, read_memory
from layerlight.engine.dtypes import runnable_dtypes
from layerlight.engine.fp8 import runnable_caches
from layerlight.engine.hidden_gpus import gpu_facts, hidden_gpu_warning


def survey_machine(disk_folder: Path | None = None) -> Machine:
    """Every place of this machine, accelerators first, in torch's own order.

    `disk_folder` is where layers would be offloaded to; its disk is the `disk` place. The first call runs a tiny
    product on each device to learn its dtypes.
    """
    found, problems = find_accelerators()
    memory = ram()
    # dtypes first: that starts each device's context, whose memory is then no longer counted as free
    dtypes = {accelerator.id: runnable_dtypes(accelerator.id) for accelerator in found}
    devices = [
        replace(
            describe(each, read_memory(each), memory), dtypes=dtypes[each.id] or (), caches=runnable_caches(each.id)
        )
        for each in found
    ]
    storage = disk(disk_folder or own_folders().offload)
    build, kinds = str(torch.__version__), frozenset(device.kind for device in devices)
    hidden = hidden_gpu_warning(gpu_facts(), build, built_for(), kinds)
    tried = replace(memory, dtypes=runnable_dtypes(memory.id) or (), caches=runnable_caches(memory.id))
    failing = [_failing(device) for device in devices if dtypes[device.id] == ()]
    return Machine(
        (*devices, tried, storage),
        torch_build=build,
        warnings=tuple(filter(None, (*problems, hidden, *failing))),
    )


def built_for() -> str:
    """`cpu`, `cuda`, `rocm` or `xpu`: what this torch was built for."""
    for name, build in (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu")):
        if getattr(torch.version, name, None):
            return build
    return "cpu"


def _failing(device: Device) -> str:
    return f"{device.name} ({device.id}) failed every small test of its arithmetic: place nothing there."
