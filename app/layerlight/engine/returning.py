"""Gives memory back: to the devices' allocators and to the system."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch

from layerlight.engine import heap


def give_back(places: Iterable[str] = ()) -> None:
    """Collects what nobody holds, lets each accelerator among `places` finish and empty its cache, trims the heap.

    The order matters: what a collection frees is only then in a device's cache, and work in flight still holds it.
    """
    gc.collect()
    accelerators = [torch.device(place) for place in places if place not in ("cpu", "disk")]
    for device in accelerators:
        synchronize(device)
    for kind in sorted({device.type for device in accelerators}):
        _module(kind).empty_cache()
    heap.trim()


def synchronize(device: torch.device) -> None:
    """Waits until an accelerator has done all that it was given."""
    if device.type == "mps":
        _module("mps").synchronize()
    else:
        _module(device.type).synchronize(device.index or 0)


def _module(kind: str) -> Any:
    """`torch.cuda`, `torch.mps`, …: get_device_module would refuse one that is not built in."""
    return getattr(torch, kind)
