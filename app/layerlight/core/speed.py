"""Seconds: per token and per load, from bytes and bandwidths."""

from __future__ import annotations

from collections.abc import Mapping

TYPICAL: Mapping[str, float] = {
    "accelerator": 250e9,
    "unified": 100e9,
    "cpu": 8e9,
    "disk": 0.5e9,
    "bus": 8e9,
    "disk-load": 1.5e9,
}
"""Bytes per second while this machine is not calibrated: an 8 GB laptop card, a base Apple chip, what two cores of an
AVX2 processor reach in bf16 decode, per-tensor reads through accelerate's hooks, a pageable copy over PCIe 4 x8, and
one long read from an NVMe disk. Good for an order of magnitude, and said so wherever it is shown."""

LAYER_OVERHEAD = 0.0009
"""Seconds of Python and dispatch per decoder layer and pass, eager mode, one busy core."""


def carry_seconds(size: int, rests_on: str, runs_on: str, rates: Mapping[str, float]) -> float:
    """Seconds to bring `size` bytes of weights to where they are read, for one pass."""
    if rests_on == runs_on:
        return 0.0
    if rests_on == "disk":
        to_ram = size / rates["disk"]
        return to_ram if runs_on == "cpu" else to_ram + size / rates["bus"]
    return size / rates["bus"]


def read_seconds(size: int, runs_on: str, unified: bool, rates: Mapping[str, float]) -> float:
    """Seconds in which the device reads `size` bytes of weights once: what decode is bound by."""
    if runs_on == "cpu":
        return size / rates["cpu"]
    return size / rates.get(runs_on, rates["unified" if unified else "accelerator"])


def rates_of(bandwidths: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Measured bandwidths over typical ones."""
    return {**TYPICAL, **dict(bandwidths)}
