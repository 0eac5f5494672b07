"""The machine: its devices, its memory, and sizes read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from layerlight.core.errors import BadSize, UnknownPlace

CPU = "cpu"
DISK = "disk"

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_BIT_UNITS = re.compile(r"[KMGT]i?b")
LARGEST_SIZE = 2**60


@dataclass(frozen=True, slots=True)
class Device:
    """A place where layers can rest. `total` and `free` are bytes; None means that they can't be read."""

    id: str
    """`cuda:0`, `xpu:1`, `mps`, `sim:0`, `cpu` (RAM) or `disk`."""
    kind: str
    """`cuda`, `rocm`, `xpu`, `mps`, `sim`, `cpu` or `disk`."""
    name: str
    total: int | None = None
    free: int | None = None
    shares_memory_with: str | None = None
    """The id of the device that owns the same memory: `cpu` for unified memory."""
    dtypes: tuple[str, ...] = ()
    """dtypes that a probe ran on this device, as torch names them; empty when not probed yet."""
    note: str = ""
    capability: tuple[int, int] | None = None
    """CUDA's compute capability; None for other kinds, and where nobody knows."""
    caches: tuple[str, ...] | None = None
    """Quantised KV caches that a probe ran on this device (`fp8`); None when not probed yet."""

    @property
    def is_accelerator(self) -> bool:
        return self.kind not in (CPU, DISK)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a survey found, accelerators first, then `cpu`, then `disk`."""

    devices: tuple[Device, ...]
    bandwidths: tuple[tuple[str, float], ...] = ()
    """Bytes per second by name, e.g. `("cpu", 2e10)`; empty until calibrated."""
    torch_build: str = ""
    """`2.13.0+cpu`, or empty when torch was not asked."""
    warnings: tuple[str, ...] = ()

    def device(self, place: str) -> Device:
        """The device with this id. Raises UnknownPlace with the places there are."""
        for device in self.devices:
            if device.id == place:
                return device
        known = ", ".join(device.id for device in self.devices)
        raise UnknownPlace(f"“{place}” is not a place on this machine.", hint=f"Places here: {known}.")

    def has(self, place: str) -> bool:
        return any(device.id == place for device in self.devices)

    @property
    def accelerators(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.is_accelerator)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan may use. Limits are bytes per place, kept sorted so that their order never matters."""

    limits: tuple[tuple[str, int], ...] = ()
    reserve: tuple[tuple[str, int], ...] = ()
    """Bytes per place that stay free in place of the plan's own margin."""
    context: int = 4096
    """Tokens the KV cache must hold: prompt and answer together."""

    @classmethod
    def of(cls, limits: Iterable[tuple[str, int]], context: int = 4096) -> Budget:
        """A budget from limits in any order; of two limits for one place the last counts."""
        return cls(limits=tuple(sorted(dict(limits).items())), context=context)

    def limit(self, place: str) -> int | None:
        return dict(self.limits).get(place)


def parse_size(words: str) -> int:
    """Bytes for `64MiB`, `1.5 GB`, `4096`. GB is decimal, GiB and a lone G are binary.

    Raises BadSize for anything else, and for bits (`10Gb`), whose meaning is ambiguous.
    """
    match = _SIZE.fullmatch(words)
    unit = match[2] if match else ""
    if match is None or unit.lower() not in UNITS:
        raise BadSize(
            f"“{words}” can't be read as a size.", hint="Write for example 6GiB, 6000MB or a number of bytes."
        )
    if _BIT_UNITS.fullmatch(unit):
        byte_unit = unit[:-1] + "B"
        raise BadSize(f"“{words}” names bits, not bytes.", hint=f"Write {match[1]}{byte_unit} if you mean bytes.")
    amount = float(match[1]) * UNITS[unit.lower()]
    if amount > LARGEST_SIZE:
        raise BadSize(f"“{words[:40]}” is more than any machine has.", hint="Check the unit: 8GiB, 512MiB.")
    return round(amount)


def format_size(size: int | None, digits: int = 1) -> str:
    """`10.5 GiB` from bytes; `unknown` for None."""
    if size is None:
        return "unknown"
    sign, amount = ("-" if size < 0 else ""), float(abs(size))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{sign}{amount:.0f} B" if unit == "B" else f"{sign}{amount:.{digits}f} {unit}"
        amount /= 1024
    return f"{sign}{amount:.{digits}f} TiB"


def parse_limit(words: str) -> tuple[str, int]:
    """(`cuda:0`, bytes) for `cuda:0=6GiB`. Raises BadSize or UnknownPlace for anything else."""
    place, equals, size = words.partition("=")
    if not equals or not place.strip():
        raise UnknownPlace(f"“{words}” is not a limit.", hint="Write PLACE=SIZE, for example cpu=8GiB or cuda:0=6GiB.")
    return place.strip(), parse_size(size)
