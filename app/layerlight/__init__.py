"""Layerlight runs models on the machine you have and shows where every layer lives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerlight.core.device import Machine
    from layerlight.core.model import Model
    from layerlight.core.plan import Plan

__all__ = ["inspect", "plan"]
__version__ = "0.1.0"


def inspect(folder: str | Path) -> Model:
    """What a model folder holds: kind, layers and exact bytes, read without torch and without a weight.

    Raises NotAModel where there is no model; what keeps a model from running is in `problems`.
    """
    from layerlight.core.inspection import inspect_folder

    return inspect_folder(folder)


def plan(
    folder: str | Path,
    *,
    limits: Mapping[str, str | int] | None = None,
    context: int | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
    machine: Machine | None = None,
) -> Plan:
    """A plan for the model in a folder, without torch; `core.export.device_map` makes of it what transformers takes.

    `limits` are bytes or sizes in words by place: `{"cuda:0": "6GiB", "cpu": "8GiB"}`. Without a `machine` this one's
    RAM and disk are used, and each accelerator that has a limit. Raises a LayerlightError for a folder or a wish that
    can't be met; ask `fits` whether all layers have room.
    """
    from layerlight.core.local_plan import plan_folder

    return plan_folder(folder, limits or {}, context, dtype, quantize, machine)
