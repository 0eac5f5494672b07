"""Probes: each times one thing of this machine, again and again, as its callers ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch.nn import functional

from layerlight.core.device import CPU
from layerlight.core.job import Job
from layerlight.core.pacing.rate_names import bus_name, matrix_name, turned_back_name
from layerlight.engine.decode_stack import DecodeStack
from layerlight.engine.fp8 import pack, scale_of, turn_back
from layerlight.engine.returning import synchronize

MATRIX_ROWS = 512
"""Tokens of a prompt that are computed in one pass."""
MATRIX_SECONDS = 0.25
"""A product that takes longer than this is tried with fewer rows."""


class Probe(Protocol):
    """Something that can be measured. `name` is the rate's, or what `calibration.rates_from` makes rates of."""

    name: str
    stage: str
    """What is measured, in words."""

    def sample(self, job: Job) -> float:
        """One measurement: seconds, or a rate where the name is one."""


@dataclass(slots=True)
class DecodeProbe:
    """Seconds per layer of a decode pass through a stack."""

    name: str
    stage: str
    stack: DecodeStack
    tokens: int = 4

    def sample(self, job: Job) -> float:
        return self.stack.seconds(job, self.tokens)


@dataclass(slots=True)
class MatrixProbe:
    """Operations per second of a product of a prompt's rows with a weight."""

    place: str
    dtype: torch.dtype
    width: int
    name: str = field(init=False)
    stage: str = field(init=False)
    _rows: int = field(default=MATRIX_ROWS, init=False)

    def __post_init__(self) -> None:
        known = str(self.dtype).removeprefix("torch.")
        self.name = matrix_name(self.place, known)
        self.stage = f"Matrix products on {self.place} in {known}"

    def sample(self, job: Job) -> float:
        """Of the first rows that take long enough to be believed and are no larger than a prompt's."""
        weight = torch.ones(self.width, self.width, dtype=self.dtype, device=self.place)
        rows = torch.ones(self._rows, self.width, dtype=self.dtype, device=self.place)
        repeats, seconds = self._first(rows, weight)
        while True:
            job.check()
            if seconds > MATRIX_SECONDS and self._rows > 32:
                self._rows //= 4  # bfloat16 without instructions for it: as slow with few rows, and bounded
                return 2.0 * len(rows) * self.width**2 * repeats / seconds
            if seconds >= 0.005 or repeats >= 4096:
                return 2.0 * len(rows) * self.width**2 * repeats / seconds
            repeats *= 4
            seconds = _timed(lambda: functional.linear(rows, weight), repeats, self.place)

    def _first(self, rows: torch.Tensor, weight: torch.Tensor) -> tuple[int, float]:
        _timed(lambda: functional.linear(rows[:32], weight), 1, self.place)
        return 1, _timed(lambda: functional.linear(rows, weight), 1, self.place)


class MemoryProbe:
    """Bytes per second at which an accelerator reads weights of its own memory for one token."""

    def __init__(self, place: str, dtype: torch.dtype, size: int, width: int = 4096) -> None:
        """`size` is bytes of weights read in turn: more than its caches hold."""
        self.name = place
        self.stage = f"Memory of {place}"
        count = max(1, size // (width * width * dtype.itemsize))
        self._weights = [torch.ones(width, width, dtype=dtype, device=place) for _ in range(count)]
        self._token = torch.ones(1, width, dtype=dtype, device=place)

    def sample(self, job: Job) -> float:
        job.check()
        bytes_read = sum(weight.numel() * weight.element_size() for weight in self._weights)
        return bytes_read / _timed(self._read, 1, self.name)

    def _read(self) -> None:
        for weight in self._weights:
            functional.linear(self._token, weight)


class BusProbe:
    """Bytes per second of a copy between RAM and an accelerator, in one direction."""

    def __init__(self, place: str, inward: bool, pinned: bool, size: int) -> None:
        """Raises RuntimeError where this torch can't pin memory."""
        self.name = bus_name(place, inward, pinned)
        self.stage = f"Copies {'to' if inward else 'from'} {place}, {'page-locked' if pinned else 'ordinary'} RAM"
        host = torch.ones(size, dtype=torch.uint8)
        self._host = host.pin_memory() if pinned else host
        self._there = torch.ones(size, dtype=torch.uint8, device=place)
        self._place, self._inward = place, inward

    def sample(self, job: Job) -> float:
        job.check()
        target, source = (self._there, self._host) if self._inward else (self._host, self._there)
        return source.numel() / _timed(lambda: target.copy_(source), 1, self._place)


class TurnBackProbe:
    """Elements per second of one layer's keys in fp8 that grow by a token and become `dtype` again."""

    def __init__(self, place: str, dtype: torch.dtype, elements: int) -> None:
        """Raises what torch raises where a device has no float8."""
        self.name = turned_back_name(place)
        self.stage = f"An 8-bit KV cache on {place}"
        states = torch.ones(1, 8, max(1, elements // 1024), 128, dtype=dtype, device=place)
        self._scale = scale_of(states)
        self._packed = pack(states, self._scale)
        self._place, self._dtype = place, dtype

    def sample(self, job: Job) -> float:
        job.check()
        return self._packed.numel() / _timed(self._grow, 1, self._place)

    def _grow(self) -> None:
        grown = torch.cat([self._packed, self._packed[..., :1, :]], dim=-2)
        turn_back(grown, self._scale, self._dtype)


def _timed(work: Callable[[], object], repeats: int, place: str) -> float:
    """Seconds until so many repeats are really done."""
    with torch.inference_mode():
        _wait_for(place)
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        _wait_for(place)
        return max(time.perf_counter() - started, 1e-9)


def _wait_for(place: str) -> None:
    if place != CPU:
        synchronize(torch.device(place))
