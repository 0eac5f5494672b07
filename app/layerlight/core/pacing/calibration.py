"""Calibration: what was measured of a machine, whose it is, and how it becomes part of the machine."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from layerlight.core.device import DISK, Machine
from layerlight.core.pacing.rate_names import DISK_LOAD, DISK_RING, is_rate_name, overhead_name

CPU_FACTS = Path("/proc/cpuinfo")
_DISK_RATES = frozenset({DISK, DISK_LOAD, DISK_RING, overhead_name(DISK)})


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine's measured rates, by the names of `rate_names`."""

    machine: str
    """`identity_of` the machine that was measured."""
    rates: tuple[tuple[str, float], ...]
    spreads: tuple[tuple[str, float], ...] = ()
    """(rate, how far its samples lay apart as a part of their median); rates sampled once are left out."""
    disk_total: int | None = None
    """Bytes of the disk that was measured: its rates say nothing of another one."""
    when: float = 0.0
    """Seconds since 1970."""


def identity_of(machine: Machine) -> str:
    """A name for this machine that stays while its devices, its processor and its torch do.

    The disk is no part of it, because a person may point at another one; totals count in whole GiB, because a
    kernel's own share of RAM changes from start to start.
    """
    devices = [
        (device.id, device.kind, device.name, None if device.total is None else round(device.total / 2**30))
        for device in machine.devices
        if device.id != DISK
    ]
    facts = json.dumps([devices, machine.torch_build, cpu_name()])
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def with_rates(machine: Machine, calibration: Calibration | None) -> Machine:
    """The machine with its measured rates; as it is when they are of another machine, or when there are none."""
    if calibration is None or calibration.machine != identity_of(machine):
        return machine
    same_disk = machine.has(DISK) and machine.device(DISK).total == calibration.disk_total
    rates = tuple(
        (name, rate)
        for name, rate in calibration.rates
        if is_rate_name(name) and rate > 0 and (same_disk or name not in _DISK_RATES)
    )
    return replace(machine, bandwidths=rates)


def calibrated(machine: Machine, spreads: tuple[tuple[str, float], ...], when: float) -> Calibration:
    """The calibration to keep of a machine whose rates were just measured."""
    disk = machine.device(DISK).total if machine.has(DISK) else None
    return Calibration(identity_of(machine), machine.bandwidths, spreads, disk, when)


def cpu_name(facts: Path = CPU_FACTS) -> str:
    """The processor as it calls itself; what Python knows of it where the system has no such list."""
    try:
        for line in facts.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


# -- samples → rates ---------------------------------------------------------------------------------------------------


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in samples.items() if values}


def spreads(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How far the samples of each lie apart, as a part of their median; what was sampled once is left out."""
    return {
        name: (max(values) - min(values)) / median(values)
        for name, values in samples.items()
        if len(values) > 1 and median(values) > 0
    }
