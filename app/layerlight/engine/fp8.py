"""Keys and values in eight bits: packed, turned back for every pass, and tried on a device."""

from __future__ import annotations

import logging

import torch

from layerlight.core.sizing.kv_cache import FP8
from layerlight.engine.accelerators import READING_FAILURES

log = logging.getLogger(__name__)

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
HEADROOM = 8.0
"""How many times larger than the first states later ones may be: the scale is theirs too. More are cut off."""
LEAST_SCALE, MOST_SCALE = 2.0**-100, 2.0**7
"""What multiplying bits by, as the CPU does it, stays inside float32."""

_AS_BITS = {
    torch.bfloat16: (4, ~0x7800, torch.int16, 2.0**120),
    torch.float16: (7, ~0x4000, torch.int16, 2.0**8),
    torch.float32: (20, ~0x78000000, torch.int32, 2.0**120),
}
"""By dtype: how far float8's bits go up, which copies of their sign go, whole numbers of that size, and what a value
has to be multiplied with because exponents count from elsewhere."""

_known: dict[str, tuple[str, ...]] = {}


def scale_of(states: torch.Tensor) -> torch.Tensor:
    """A power of two, in float32: dividing and multiplying by it changes no digit, so that the same states are rounded
    alike whatever came first."""
    largest = states.abs().amax().float() * (HEADROOM / LARGEST)
    return torch.exp2(torch.ceil(torch.log2(largest.clamp(LEAST_SCALE, MOST_SCALE))))


def pack(states: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (states / scale).clamp_(-LARGEST, LARGEST).to(FLOAT8)


def turn_back(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Packed states in `dtype`, which is all the memory that it takes.

    torch converts float8 on a CPU one by one: moving bits instead is five times as fast (measured), and the same.
    """
    if packed.device.type != "cpu" or dtype not in _AS_BITS:
        return packed.to(dtype).mul_(scale)
    up, kept, whole, by = _AS_BITS[dtype]
    bits = packed.view(torch.int8).to(whole)
    bits <<= up
    bits &= kept
    return bits.view(dtype).mul_(scale * by)


def runnable_caches(place: str) -> tuple[str, ...] | None:
    """Quantised caches that a device really keeps; asked once a process.

    None where the device had no room for the attempt, which says nothing: it is asked again.
    """
    if place not in _known:
        try:
            _known[place] = (FP8,) if _keeps(place) else ()
        except torch.OutOfMemoryError:
            return None
    return _known[place]


def _keeps(place: str) -> bool:
    """Whether states come back from a cache that grew, and was cut back, as the CPU rounds them."""
    source = torch.linspace(-3.0, 3.0, 96).view(1, 2, 6, 8)
    expected = _there_and_back(source)[..., :5, :]
    try:
        with torch.inference_mode():
            result = _there_and_back(source.to(place))[..., :5, :].to("cpu")
    except torch.OutOfMemoryError:
        raise
    except READING_FAILURES as error:
        log.info("%s does not keep keys and values in float8: %s", place, error)
        return False
    return bool((result - expected).abs().max() <= 1e-6)


def _there_and_back(states: torch.Tensor) -> torch.Tensor:
    scale = scale_of(states)
    first, second = pack(states[..., :4, :], scale), pack(states[..., 4:, :], scale)
    return turn_back(torch.cat([first, second], dim=-2), scale, states.dtype)
