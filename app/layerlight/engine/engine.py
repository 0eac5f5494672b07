"""TorchEngine: owns the one loaded model; surveys, loads, answers and unloads."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from layerlight.core.errors import BadRequest, LayerlightError
from layerlight.core.folders import own_folders
from layerlight.core.job import Job
from layerlight.core.messages import (
    CalibrateRequest,
    DevicesSurveyed,
    Event,
    LayerPlaced,
    LoadRequest,
    LoadStarted,
    MemoryMeasured,
    ModelLoaded,
    ModelUnloaded,
    PlaceMemory,
    RunFinished,
    StarterRequest,
    StrategiesMapped,
    StrategiesRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.engine.checking import CheckedModel, check
from layerlight.engine.device_memory import measure_memory, reset_peaks
from layerlight.engine.empty_model import torch_dtype
from layerlight.engine.file_stamps import Stamps, stamps
from layerlight.engine.heap import keep_heap_tight
from layerlight.engine.kept_cache import KeptCache
from layerlight.engine.loading import LoadedModel, load_model, load_tokenizer
from layerlight.engine.logs import quiet_libraries
from layerlight.engine.offload_folder import sweep
from layerlight.engine.resident_layers import ResidentLayers
from layerlight.engine.returning import give_back
from layerlight.engine.single_passes import compute_in_single
from layerlight.engine.survey import survey_machine
from layerlight.engine.text import answer, count_prompt

log = logging.getLogger(__name__)

MEASURING_INTERVAL = 0.5
"""Seconds between two looks at memory while a job runs."""


class TorchEngine:
    """One model at a time, one call at a time, all from one thread.

    After any failure what `loaded` says is true: a refused request leaves the model before it in place, a failed or
    cancelled load leaves nothing.
    """

    def __init__(self) -> None:
        keep_heap_tight()
        quiet_libraries()
        sweep(own_folders().offload)
        self.loaded: LoadedModel | None = None
        self.resident: ResidentLayers | None = None
        """Reads layers in RAM that are pages of their files into memory of the process's own."""
        self.kept = KeptCache()
        """What the last answer left, for the next prompt that begins like it."""
        self._tokenizer: tuple[str, Any] | None = None
        """(folder, tokenizer) that a prompt was counted with: the next load need not read it again."""
        self._checked: tuple[LoadRequest, Stamps, CheckedModel] | None = None
        """The request that was checked last, the folder's files then, and what came of it."""
        self._before: dict[str, int | None] = {}
        """Bytes of this process by place, before the load that was the last."""
        self._measured_at = 0.0

    def survey(self, job: Job) -> None:
        """Finds the devices; answered by DevicesSurveyed."""
        job.emit(DevicesSurveyed(survey_machine()))

    def calibrate(self, request: CalibrateRequest, job: Job) -> None:
        """Measures how fast the machine is, beside a model that may be loaded; answered by MachineCalibrated.

        Raises Stopped when asked to stop: nothing of it is kept then.
        """
        from layerlight.engine.calibration import calibrate

        job.emit(calibrate(request, job))

    def load(self, request: LoadRequest, job: Job) -> None:
        """Loads as planned, in place of the model that was there. What can be refused is refused before that one goes.

        Raises MapMismatch, NotAModel or BadRequest with nothing changed; BrokenModel, LoadFailed, OutOfMemory or
        Stopped with no model loaded.
        """
        started = time.monotonic()
        checked = self._check(request)
        job.emit(checked.checked)
        job.check()
        self._drop()
        reset_peaks()
        self._before = {each.place: each.process for each in measure_memory()}
        sizes = dict(checked.checked.layers)
        job.emit(LoadStarted(request.folder, sum(sizes.values()), len(sizes)))
        try:
            loaded = load_model(request, checked, self._measuring(job), self._tokenizer_of(request.folder))
        except LayerlightError:
            self._checked = None
            del checked
            give_back({place for each in request.placements for place in (each.rests_on, each.runs_on)})
            raise
        self.loaded = loaded
        compute_in_single(loaded.model, torch_dtype(request.dtype))
        give_back(loaded.places)
        self.resident = ResidentLayers(loaded.model, loaded.placed)
        for placed in loaded.placed:
            job.emit(LayerPlaced(placed))
        job.emit(ModelLoaded(request.folder, time.monotonic() - started, loaded.placed, self.memory()))

    def count(self, request: TextRequest, load: LoadRequest, job: Job) -> None:
        """Refuses a prompt that can't be run, before the weights that it is for are loaded.

        Raises what `load_tokenizer` and `count_prompt` raise.
        """
        tokenizer = load_tokenizer(load.folder)
        count_prompt(request, load, tokenizer, job)
        self._tokenizer = load.folder, tokenizer

    def check(self, request: LoadRequest, job: Job) -> None:
        """Holds a request against the empty model and tells exact bytes; a load that asks the same need not again.

        Raises what `check` raises, with nothing changed.
        """
        job.emit(self._check(request).checked)

    def generate(self, request: TextRequest, job: Job) -> None:
        """Answers with the loaded model; a stop ends it with RunFinished and what was written so far.

        Raises BadRequest when no model is loaded, and what `text.answer` raises.
        """
        if self.loaded is None or self.resident is None:
            raise BadRequest("No model is loaded.", hint="Load one first.")
        with self.resident.answering(self.loaded.model) as begun:
            result = answer(request, self.loaded, self.kept, self._measuring(_telling(job, begun)))
        self._tell_resident(self.loaded, self.resident.taken(), job)
        job.emit(RunFinished(replace(result, memory=self.memory())))

    def unload(self, job: Job) -> None:
        """Drops the model and measures what came back; without one nothing is lost."""
        before = self.memory()
        self._drop()
        after = self.memory()
        job.emit(ModelUnloaded(after, _returned(before, after)))

    def fetch_starter(self, request: StarterRequest, job: Job) -> None:
        """Fetches a starter model; see engine/starter.py."""
        from layerlight.engine.starter import fetch_starter

        fetch_starter(request, job)

    def map_strategies(self, request: StrategiesRequest, job: Job) -> None:
        """Asks accelerate for its maps; a model that it knows nothing of is an answer too."""
        from layerlight.engine.strategies import strategy_maps

        config = None if request.config is None else json.loads(request.config)
        try:
            maps = strategy_maps(request.plan, config=config)
        except LayerlightError as error:
            job.emit(StrategiesMapped(request.number, trouble=error.message))
        else:
            job.emit(StrategiesMapped(request.number, tuple(maps.items())))

    def memory(self) -> tuple[PlaceMemory, ...]:
        """Bytes on each place now, measured."""
        found = measure_memory(self.loaded.placed if self.loaded else ())
        return tuple(replace(each, before=self._before.get(each.place)) for each in found)

    def close(self) -> None:
        """Leaves no file behind; memory goes with the process."""
        loaded, self.loaded = self.loaded, None
        self.kept.drop()
        self._end_reading()
        if loaded is not None:
            loaded.drop()

    def carry_out(
        self,
        request: SurveyRequest
        | CalibrateRequest
        | LoadRequest
        | TextRequest
        | UnloadRequest
        | StarterRequest
        | StrategiesRequest,
        job: Job,
    ) -> None:
        """Whichever method answers this request."""
        match request:
            case SurveyRequest():
                self.survey(job)
            case CalibrateRequest():
                self.calibrate(request, job)
            case LoadRequest():
                self.load(request, job)
            case TextRequest():
                self.generate(request, job)
            case UnloadRequest():
                self.unload(job)
            case StarterRequest():
                self.fetch_starter(request, job)
            case StrategiesRequest():
                self.map_strategies(request, job)

    def _check(self, request: LoadRequest) -> CheckedModel:
        """What came of checking this request last, as long as the folder holds the same files."""
        files = stamps(request.folder)
        before, self._checked = self._checked, None
        checked = before[2] if before and before[:2] == (request, files) else check(request)
        self._checked = request, files, checked
        return checked

    def _tell_resident(self, loaded: LoadedModel, layers: tuple[str, ...], job: Job) -> None:
        """These are no longer pages of their files."""
        if layers:
            loaded.placed = tuple(
                replace(each, mapped=False) if each.layer in layers else each for each in loaded.placed
            )
            for placed in loaded.placed:
                if placed.layer in layers:
                    job.emit(LayerPlaced(placed))

    def _tokenizer_of(self, folder: str) -> Any:
        """The one that was read for counting; None where that was for another folder or long ago."""
        counted, self._tokenizer = self._tokenizer, None
        return counted[1] if counted and counted[0] == folder else None

    def _drop(self) -> None:
        loaded, self.loaded = self.loaded, None
        self.kept.drop()
        self._end_reading()
        if loaded is None:
            return
        places = loaded.places
        loaded.drop()
        del loaded
        give_back(places)

    def _end_reading(self) -> None:
        resident, self.resident = self.resident, None
        if resident is not None:
            resident.close()

    def _measuring(self, job: Job) -> Job:
        """The same job; its events are followed by a look at memory now and then."""

        def emit(event: Event) -> None:
            job.emit(event)
            self._measure_now_and_then(job)

        return Job(emit, job.stop)

    def _measure_now_and_then(self, job: Job) -> None:
        now = time.monotonic()
        if now - self._measured_at >= MEASURING_INTERVAL:
            self._measured_at = now
            job.emit(MemoryMeasured(self.memory()))


def _telling(job: Job, begun: Callable[[], None]) -> Job:
    """The same job; `begun` is called once there is text."""

    def emit(event: Event) -> None:
        if isinstance(event, TextProduced):
            begun()
        job.emit(event)

    return Job(emit, job.stop)


def _returned(before: tuple[PlaceMemory, ...], after: tuple[PlaceMemory, ...]) -> tuple[tuple[str, int], ...]:
    """(place, bytes) the process held before and holds no more."""
    held = {each.place: each.process for each in after}
    return tuple(
        (each.place, each.process - now)
        for each in before
        if each.process is not None and (now := held.get(each.place)) is not None and each.process > now
    )
