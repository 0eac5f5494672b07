"""Seconds of layers of two sizes → rates: what a layer takes whatever its size, and what each byte takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layerlight.core.device import CPU, DISK
from layerlight.core.pacing.rate_names import BUS, DISK_RING, bus_name, is_rate_name, overhead_name, weights_name

SMALL, SMALL_HALF_ON_DISK = "small layers", "small layers, half of them on disk"
LARGE_ON_DISK = "large layers on disk"
"""Probes, each in seconds per layer of a decode pass."""


def large(dtype: str) -> str:
    """The probe of large layers in RAM."""
    return f"large layers in {dtype}"


def on(place: str) -> str:
    """The probe of small layers on an accelerator."""
    return f"small layers on {place}"


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """The layers that were timed: `dtype` of those in RAM and on disk, bytes of an element, parameters of a layer."""

    dtype: str
    width: int
    small: int
    large: int

    @property
    def small_bytes(self) -> int:
        return self.small * self.width

    @property
    def large_bytes(self) -> int:
        return self.large * self.width


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate, and the probes it was worked out from."""

    rate: float
    probes: tuple[str, ...]


def rates_from(samples: Mapping[str, float], layer: LayerBytes, accelerators: tuple[str, ...]) -> dict[str, Figure]:
    """Rates by name, from one figure of each probe. Where a probe is missing, or noise hides a rate, it is absent."""
    found = {name: Figure(value, (name,)) for name, value in samples.items() if is_rate_name(name) and value > 0}
    found |= _ram_rates(samples, layer)
    found |= _disk_rates(samples, layer)
    for place in accelerators:
        if on(place) in samples:
            found[overhead_name(place)] = Figure(samples[on(place)], (on(place),))
    buses = [found[bus_name(place)] for place in accelerators if bus_name(place) in found]
    if buses:
        found[BUS] = min(buses, key=lambda figure: figure.rate)
    return dict(sorted(found.items()))


def overhead_and_rate(
    small_seconds: float, small_bytes: float, large_seconds: float, large_bytes: float
) -> tuple[float, float] | None:
    """(seconds whatever the size, bytes/s) of work that was timed at two sizes.

    None where the larger took no longer, which only noise explains. The seconds are never below zero.
    """
    if large_seconds <= small_seconds or large_bytes <= small_bytes:
        return None
    rate = (large_bytes - small_bytes) / (large_seconds - small_seconds)
    overhead = small_seconds - small_bytes / rate
    return (overhead, rate) if overhead >= 0 else (0.0, large_bytes / large_seconds)


def _ram_rates(samples: Mapping[str, float], layer: LayerBytes) -> dict[str, Figure]:
    main = large(layer.dtype)
    if SMALL not in samples or main not in samples:
        return {}
    split = overhead_and_rate(samples[SMALL], layer.small_bytes, samples[main], layer.large_bytes)
    if split is None:
        return {}
    overhead, rate = split
    found = {CPU: Figure(rate, (SMALL, main))}
    if overhead > 0:
        found[overhead_name(CPU)] = Figure(overhead, (SMALL, main))
    for dtype, width in _WIDTHS.items():
        seconds = samples.get(large(dtype), 0.0) - overhead
        if seconds > 0:
            found[weights_name(CPU, dtype)] = Figure(layer.large * width / seconds, (SMALL, large(dtype)))
    return found


_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}


def _disk_rates(samples: Mapping[str, float], layer: LayerBytes) -> dict[str, Figure]:
    """Of layers on disk a pass takes as long as their reads, for it computes meanwhile: the rate of large ones. With
    half of the small ones on disk it takes longer than all work and than all reads: one slows the other."""
    if samples.get(LARGE_ON_DISK, 0.0) <= 0:
        return {}
    rate = layer.large_bytes / samples[LARGE_ON_DISK]
    found = {DISK_RING: Figure(rate, (LARGE_ON_DISK,))}
    if SMALL in samples and SMALL_HALF_ON_DISK in samples:
        overhead = 2 * samples[SMALL_HALF_ON_DISK] - max(2 * samples[SMALL], layer.small_bytes / rate)
        if overhead > 0:
            found[overhead_name(DISK)] = Figure(overhead, (SMALL, SMALL_HALF_ON_DISK, LARGE_ON_DISK))
    return found
