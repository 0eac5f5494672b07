"""A folder → a plan for this machine, without torch: its RAM, its disk and the accelerators that have a limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from layerlight.core.device import CPU, DISK, Budget, Device, Machine, parse_size
from layerlight.core.errors import BadSize
from layerlight.core.inspecting.config_folder import require_plannable
from layerlight.core.inspection import inspect_folder
from layerlight.core.machines.local_memory import disk, ram
from layerlight.core.placing import default_context, make_plan
from layerlight.core.plan import Plan, Wishes

_ACCELERATORS = frozenset({"cuda", "xpu", "mps", "sim"})


def plan_folder(
    folder: str | Path,
    limits: Mapping[str, str | int],
    context: int | None = None,
    dtype: str | None = None,
    quantization: str | None = None,
    machine: Machine | None = None,
) -> Plan:
    """The plan for the model in a folder. Raises what inspection and planning raise, and BadSize for a limit."""
    sizes = {place: _bytes(place, size) for place, size in limits.items()}
    model = require_plannable(inspect_folder(folder), tokenizer=False)
    machine = machine or local_machine(model.folder, tuple(sizes))
    budget = Budget.of(sizes.items(), default_context(model) if context is None else context)
    return make_plan(model, machine, budget, Wishes(dtype, quantization))


def local_machine(folder: str | Path, places: tuple[str, ...] = ()) -> Machine:
    """This machine as it can be read without torch. Accelerators among `places` are taken at their word."""
    named = (_accelerator(place) for place in places if place not in (CPU, DISK))
    return Machine((*(device for device in named if device), ram(), disk(folder)))


def _accelerator(place: str) -> Device | None:
    """A device of unknown size for `cuda:0`, `mps`, …; None for a place that is none, which planning then refuses."""
    kind, _, number = place.partition(":")
    if kind not in _ACCELERATORS or not (number.isdecimal() or not number):
        return None
    return Device(place, kind, place, shares_memory_with=CPU if kind == "mps" else None)


def _bytes(place: str, size: str | int) -> int:
    if isinstance(size, str):
        return parse_size(size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise BadSize(f"The limit of {place} is {size!r}.", hint="Give bytes, or words such as “6GiB”.")
    return size
