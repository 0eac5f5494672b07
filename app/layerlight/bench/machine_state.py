"""Whether the machine was free for a measurement: what others computed meanwhile, and what was stolen from it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import psutil

OTHERS = 0.25
"""Cores that others may keep busy on a quiet machine."""
STOLEN = 0.02
"""The part of all time that the host may take from a quiet machine."""


@dataclass(slots=True)
class MachineState:
    """Looks at the machine from its making on."""

    _began: float = field(default_factory=time.perf_counter)
    _all: float = field(default_factory=lambda: _busy())
    _own: float = field(default_factory=lambda: _own_seconds())
    _stolen: float = field(default_factory=lambda: _steal())

    def others(self) -> float:
        """Cores that other processes kept busy."""
        gone = time.perf_counter() - self._began
        return max(0.0, (_busy() - self._all) - (_own_seconds() - self._own)) / gone

    def stolen(self) -> float:
        """The part of the processors' time that the host gave to others."""
        gone = time.perf_counter() - self._began
        return (_steal() - self._stolen) / (gone * (os.cpu_count() or 1))

    def quiet(self) -> bool:
        return self.others() < OTHERS and self.stolen() < STOLEN


def _busy() -> float:
    """Seconds that all processors together have computed."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def _steal() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
