"""FakeEngine: keeps the engine's contract without torch, as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from layerlight.core.device import Machine
from layerlight.core.job import Job
from layerlight.core.messages import (
    CalibrateRequest,
    CalibrationProgressed,
    DevicesSurveyed,
    LayerActivity,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    LoadRequest,
    LoadStarted,
    MachineCalibrated,
    ModelChecked,
    ModelLoaded,
    ModelUnloaded,
    PlacedLayer,
    PlaceMemory,
    PromptCounted,
    RunFinished,
    RunResult,
    StarterReady,
    StarterRequest,
    TextProduced,
    TextRequest,
)
from layerlight.core.sizing.told_bytes import ToldBytes
from layerlight.core.sizing.work import Work
from tests.core.models import disk, ram


def nothing() -> None:
    """What happens in the middle of a load or a run when a test has nothing in mind."""


@dataclass
class FakeEngine:
    """`counting`, `loading` and `answering` are called in the middle of each, and may raise."""

    machine: Machine = field(default_factory=lambda: Machine((ram(), disk()), torch_build="fake"))
    pieces: Sequence[str] = ("Paris", " is", " the capital.")
    counting: Callable[[], None] = nothing
    loading: Callable[[], None] = nothing
    answering: Callable[[], None] = nothing
    calibrating: Callable[[], None] = nothing
    rates: tuple[tuple[str, float], ...] = (("cpu", 9e9), ("matrix:cpu:bfloat16", 2e11), ("overhead:cpu", 2e-3))
    calibrations: list[CalibrateRequest] = field(default_factory=list)
    counted: list[TextRequest] = field(default_factory=list)
    checks: list[LoadRequest] = field(default_factory=list)
    loads: list[LoadRequest] = field(default_factory=list)
    requests: list[TextRequest] = field(default_factory=list)
    looks: list[str | None] = field(default_factory=list)
    work: Work | None = None
    """What its empty model tells of a pass."""
    made: int = 0
    closed: int = 0

    def __call__(self) -> FakeEngine:
        self.made += 1
        return self

    def look(self, offload_folder: str | None) -> Machine:
        """Stands in for the survey."""
        self.looks.append(offload_folder)
        return self.machine

    def survey(self, job: Job) -> None:
        job.emit(DevicesSurveyed(self.machine))

    def calibrate(self, request: CalibrateRequest, job: Job) -> None:
        self.calibrations.append(request)
        job.emit(CalibrationProgressed("Memory of everything", 1.0, request.seconds))
        self.calibrating()
        job.check()
        measured = replace(self.machine, bandwidths=self.rates)
        job.emit(MachineCalibrated(measured, 14.0, (("cpu", 0.5),)))

    def count(self, request: TextRequest, load: LoadRequest, job: Job) -> None:
        self.counted.append(request)
        self.counting()

    def check(self, request: LoadRequest, job: Job) -> None:
        self.checks.append(request)
        layers = tuple((each.layer, each.size) for each in request.placements)
        kind = request.dtype, request.quantization, request.attention, request.context, request.prefill_chunk
        job.emit(ModelChecked(request.folder, layers, 4096, told=ToldBytes(*kind, layers, work=self.work)))

    def load(self, request: LoadRequest, job: Job) -> None:
        self.loads.append(request)
        placed = tuple(
            PlacedLayer(each.layer, each.rests_on, each.runs_on, each.size, each.dtype) for each in request.placements
        )
        total, count = sum(each.size for each in placed), len(placed)
        job.emit(ModelChecked(request.folder, tuple((each.layer, each.size) for each in placed), 4096))
        job.emit(LoadStarted(request.folder, total, count))
        job.emit(LoadProgressed("Loading weights", total // 2, total, count // 2, count, 1.0))
        self.loading()
        job.check()
        job.emit(LoadProgressed("Loading weights", total, total, count, count, 0.0))
        for each in placed:
            job.emit(LayerPlaced(each))
        job.emit(ModelLoaded(request.folder, 1.5, placed, (PlaceMemory("cpu", 100, 50, total, 60, 55, 20, before=15),)))

    def generate(self, request: TextRequest, job: Job) -> None:
        self.requests.append(request)
        job.emit(PromptCounted(7, 128, 121))
        told = ""
        for number, piece in enumerate(self.pieces):
            if job.stop.is_set():
                break
            layer = self.loads[-1].placements[number].layer
            job.emit(LayerRan(layer, (LayerActivity(layer, number + 1, 0.01),)))
            job.emit(TextProduced(piece, (number,)))
            told += piece
            if number == 0:
                self.answering()
        ended = "stopped" if job.stop.is_set() else "end token"
        tokens = tuple(range(told.count(" ") + 1))
        memory = (PlaceMemory("cpu", 100, 40, 30, 70, 65, 20, before=15),)
        job.emit(
            RunFinished(
                RunResult(told, tokens, 7, request.seed, ended, 2.0, 0.5, 4.0, (("model.layers.0", 0.01),), memory)
            )
        )

    def unload(self, job: Job) -> None:
        job.emit(ModelUnloaded(()))

    def fetch_starter(self, request: StarterRequest, job: Job) -> None:
        job.emit(StarterReady("/nowhere", "A-1.0"))

    def close(self) -> None:
        self.closed += 1
