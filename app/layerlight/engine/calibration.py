"""Calibration: how fast this machine really is at what decoding and prefill do, in a few seconds."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import torch

from layerlight.core.device import CPU, Device, Machine
from layerlight.core.folders import own_folders
from layerlight.core.job import Job
from layerlight.core.messages import CalibrateRequest, CalibrationProgressed, MachineCalibrated
from layerlight.core.pacing.calibration import medians, spreads
from layerlight.core.pacing.decode_rates import (
    LARGE_ON_DISK,
    SMALL,
    SMALL_HALF_ON_DISK,
    LayerBytes,
    large,
    on,
    rates_from,
)
from layerlight.engine.accelerators import READING_FAILURES
from layerlight.engine.decode_stack import DecodeStack, StackOnDisk, StackSize, zeroed
from layerlight.engine.disk_probes import DiskProbe, LongReadProbe
from layerlight.engine.probes import BusProbe, DecodeProbe, MatrixProbe, MemoryProbe, Probe, TurnBackProbe
from layerlight.engine.returning import give_back
from layerlight.engine.survey import survey_machine

log = logging.getLogger(__name__)

FAILURES = (*READING_FAILURES, MemoryError)

ENDING = 0.93
"""The part of the time after which no sample may end: the rest is for giving memory back."""

SPARE = 256 * 2**20
"""Bytes of disk that stay free beside the files that are measured."""


SMALL_STACK, LARGE_STACK = StackSize(24, 512, 1536), StackSize(2, 2048, 5632, 16, 4)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the things are that are measured. Layers of two sizes tell the time of a layer from that of a byte."""

    small: StackSize = SMALL_STACK
    """So many layers that what a pass takes beside its layers hardly counts."""
    large: StackSize = LARGE_STACK
    """Its number of layers is the least: there are as many as the processor's caches can't hold."""
    least: int = 256 * 2**20
    most: int = 384 * 2**20
    """Bytes of all large layers."""
    small_half_on_disk: int = 24
    large_on_disk: int = 2
    """Layers that rest on disk; the files are of 350 MB then."""
    matrix: int = 1024
    """Width of a matrix product."""
    device: int = 512 * 2**20
    """Bytes of weights read from an accelerator's memory, at most a quarter of what is free there."""
    copy: int = 64 * 2**20
    """Bytes of a copy over the bus."""
    cache: int = 4 * 2**20
    """Elements of a KV cache in 8 bit."""
    rounds: int = 20
    """The most samples of each probe, when they go so fast that time is left."""


def calibrate(
    request: CalibrateRequest, job: Job, machine: Machine | None = None, sizes: Sizes | None = None
) -> MachineCalibrated:
    """Measures the machine in `request.seconds`; on a machine so slow that one round takes longer, what comes last
    is left out.

    A rate that can't be measured is absent. Raises Stopped when asked to stop; whatever happens, its files and its
    memory are given back.
    """
    sizes = sizes or Sizes()
    folder = Path(request.folder) if request.folder else own_folders().offload
    session = _Session(job, ENDING * request.seconds, sizes.rounds)
    session.tell("Looking for devices")
    machine = machine or survey_machine(folder)
    dtype = _main_dtype(machine.device(CPU))
    try:
        with _own_folder(folder) as own, session.closing:
            _prepare_cpu(session, machine.device(CPU), sizes)
            _prepare_disk(session, dtype, sizes, own)
            for device in machine.accelerators:
                _prepare_accelerator(session, device, sizes)
            session.sample_all()
    finally:
        session.probes.clear()
        give_back(device.id for device in machine.accelerators)
    width = _torch(dtype).itemsize
    layer = LayerBytes(dtype, width, sizes.small.layer_parameters, sizes.large.layer_parameters)
    places = tuple(device.id for device in machine.accelerators)
    figures = rates_from(medians(session.samples), layer, places)
    apart = spreads(session.samples)
    return MachineCalibrated(
        replace(machine, bandwidths=tuple((name, figure.rate) for name, figure in figures.items())),
        session.gone,
        tuple(
            (name, max(apart[probe] for probe in figure.probes))
            for name, figure in figures.items()
            if all(probe in apart for probe in figure.probes)
        ),
    )


@dataclass(slots=True)
class _Session:
    """One calibration: its clock, its probes and what they have sampled."""

    job: Job
    limit: float
    rounds: int
    started: float = field(default_factory=time.monotonic)
    probes: list[Probe] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    closing: ExitStack = field(default_factory=ExitStack)
    """Ends what reads ahead of a probe."""
    _took: dict[str, float] = field(default_factory=dict)

    @property
    def gone(self) -> float:
        return time.monotonic() - self.started

    def tell(self, stage: str) -> None:
        self.job.check()
        self.job.emit(CalibrationProgressed(stage, min(self.gone, self.limit), self.limit))

    def add(self, stage: str, make: Callable[[], list[Probe]]) -> None:
        """Prepares probes; those that this machine can't do are left out."""
        self.tell(stage)
        try:
            self.probes += make()
        except FAILURES as error:
            log.info("%s: %s", stage, error)

    def sample_all(self) -> None:
        """The probes in turns while time is left: what disturbs the machine meanwhile meets all alike."""
        for _ in range(self.rounds):
            for probe in tuple(self.probes):
                if self.gone + self._took.get(probe.name, 0.0) > self.limit:
                    return
                self._sample(probe)

    def _sample(self, probe: Probe) -> None:
        self.tell(probe.stage)
        began = time.monotonic()
        try:
            self.samples.setdefault(probe.name, []).append(probe.sample(self.job))
        except FAILURES as error:
            log.info("%s can't be measured: %s", probe.stage, error)
            self.probes.remove(probe)
            self.samples.pop(probe.name, None)
        self._took[probe.name] = max(self._took.get(probe.name, 0.0), time.monotonic() - began)


# -- what is measured --------------------------------------------------------------------------------------------------


def _prepare_cpu(session: _Session, ram: Device, sizes: Sizes) -> None:
    dtypes = ram.dtypes or ("bfloat16", "float16", "float32")
    main = _torch(_main_dtype(ram))
    wanted = min(sizes.most, max(sizes.least, 2 * last_level_cache()))
    stacks = {name: _at_least(sizes.large, wanted, _torch(name)) for name in dtypes}
    needed = max(
        sizes.small.buffer_bytes(main.itemsize),
        *(size.buffer_bytes(_torch(name).itemsize) for name, size in stacks.items()),
    )

    def layers() -> list[Probe]:
        if needed > psutil.virtual_memory().available // 2:
            raise MemoryError("there is too little free RAM")
        room = zeroed(needed)
        small = DecodeProbe(SMALL, "Small layers in RAM", DecodeStack(sizes.small, main, room))
        return [
            small,
            *(
                DecodeProbe(large(name), f"Large layers in RAM in {name}", DecodeStack(size, _torch(name), room), 3)
                for name, size in stacks.items()
            ),
        ]

    session.add("Preparing layers in RAM", layers)
    session.add("Preparing a KV cache", lambda: [TurnBackProbe(CPU, main, sizes.cache)])
    session.probes += [MatrixProbe(CPU, _torch(name), sizes.matrix) for name in dtypes]


def _at_least(size: StackSize, wanted: int, dtype: torch.dtype) -> StackSize:
    """The stack with as many layers as hold so many bytes."""
    layers = -(-wanted // (size.layer_parameters * dtype.itemsize))
    return replace(size, layers=max(size.layers, layers))


def _prepare_disk(session: _Session, dtype: str, sizes: Sizes, folder: Path) -> None:
    small = replace(sizes.small, layers=sizes.small_half_on_disk)
    big = replace(sizes.large, layers=sizes.large_on_disk)
    needed = [size.buffer_bytes(_torch(dtype).itemsize) for size in (small, big)]

    def layers() -> list[Probe]:
        if shutil.disk_usage(folder).free < sum(needed) + SPARE:
            raise OSError(f"the disk of {folder} has too little room")
        room = zeroed(max(needed))
        few = StackOnDisk(small, _torch(dtype), room, folder / "small.safetensors", small.layers // 2)
        session.closing.callback(few.close)
        many = StackOnDisk(big, _torch(dtype), room, folder / "large.safetensors", big.layers)
        session.closing.callback(many.close)
        return [
            DiskProbe(SMALL_HALF_ON_DISK, few),
            DiskProbe(LARGE_ON_DISK, many),
            LongReadProbe(many.file),
        ]

    session.add("Writing layers to disk", layers)


def _prepare_accelerator(session: _Session, device: Device, sizes: Sizes) -> None:
    place = device.id
    words = f"Preparing {device.name} ({place})"
    free = device.free if device.free is not None else 4 * sizes.device
    dtypes = device.dtypes or ("float32",)
    main = _torch(dtypes[0])
    stack = sizes.small.buffer_bytes(main.itemsize)

    def layers() -> list[Probe]:
        if stack > free // 4:
            raise MemoryError("there is too little free memory")
        return [
            DecodeProbe(on(place), f"Small layers on {place}", DecodeStack(sizes.small, main, zeroed(stack, place)))
        ]

    def copy(inward: bool, pinned: bool) -> list[Probe]:
        return [BusProbe(place, inward, pinned, min(sizes.copy, free // 8))]

    session.add(words, lambda: [MemoryProbe(place, main, min(sizes.device, free // 4), 2 * sizes.matrix)])
    session.add(words, layers)
    session.add(words, lambda: copy(inward=True, pinned=False))
    session.add(words, lambda: copy(inward=False, pinned=False))
    session.add(words, lambda: copy(inward=True, pinned=True))
    session.add(words, lambda: copy(inward=False, pinned=True))
    session.add(words, lambda: [TurnBackProbe(place, main, min(sizes.cache, free // 16))])
    session.probes += [MatrixProbe(place, _torch(name), sizes.matrix) for name in dtypes]


# -- the surroundings --------------------------------------------------------------------------------------------------


def last_level_cache(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the processor's largest cache; 64 MB where the system does not tell."""
    sizes = []
    for file in folder.glob("index*/size"):
        try:
            words = file.read_text().strip()
            sizes.append(int(words.rstrip("KM")) * {"K": 2**10, "M": 2**20}.get(words[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(sizes, default=64 * 2**20)


def _main_dtype(ram: Device) -> str:
    """What most models are loaded in, where the processor runs it."""
    return "bfloat16" if "bfloat16" in (ram.dtypes or ("bfloat16",)) else "float32"


def _torch(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


@contextmanager
def _own_folder(parent: Path) -> Iterator[Path]:
    """A folder on the disk to be measured, gone afterwards. One that can't be made is a path that can't be written."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        own = tempfile.mkdtemp(prefix="calibration-", dir=parent)
    except OSError as error:
        log.info("the disk of %s can't be measured: %s", parent, error)
        yield parent / "absent"
        return
    try:
        yield Path(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
