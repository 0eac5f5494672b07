"""Which dtypes really run on a device: a tiny matrix product and softmax are tried, not looked up."""

from __future__ import annotations

import logging

import torch

from layerlight.engine.accelerators import READING_FAILURES

log = logging.getLogger(__name__)

CANDIDATES = ("bfloat16", "float16", "float32")
TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-4}
"""The largest difference of a softmax from the CPU's in float32: a few steps of each dtype's last bit near 1."""

_known: dict[str, tuple[str, ...]] = {}


def runnable_dtypes(place: str) -> tuple[str, ...] | None:
    """torch's names of the dtypes that run on `place` and give the right numbers; asked once a process.

    None where the device had no room for the attempt: that says nothing about its dtypes, so it is asked again.
    """
    if place not in _known:
        try:
            _known[place] = tuple(name for name in CANDIDATES if _runs(place, name))
        except torch.OutOfMemoryError:
            return None
    return _known[place]


def _runs(place: str, name: str) -> bool:
    dtype = getattr(torch, name)
    source = torch.linspace(-1.0, 1.0, 256).view(16, 16)
    expected = (source @ source.t()).softmax(-1)
    try:
        with torch.inference_mode():
            placed = source.to(place, dtype)
            result = (placed @ placed.t()).softmax(-1).to("cpu", torch.float32)
    except torch.OutOfMemoryError:
        raise
    except READING_FAILURES as error:
        log.info("%s does not run %s: %s", place, name, error)
        return False
    return bool(result.isfinite().all()) and bool((result - expected).abs().max() <= TOLERANCE[name])
