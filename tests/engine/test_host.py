"""The engine's own process: it hears while it works, and is gone when nobody listens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Budget, Machine
from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStarted,
    EngineWarmed,
    Failed,
    LoadProgressed,
    ModelLoaded,
    ModelUnloaded,
    PromptCounted,
    QuitRequest,
    RunFinished,
    StopRequest,
    StrategiesMapped,
    StrategiesRequest,
    SurveyRequest,
    TextProduced,
    UnloadRequest,
)
from layerlight.core.placing import ENGINE_STRATEGIES, make_plan
from layerlight.engine.engine import TorchEngine
from tests.core.models import accelerator, disk, ram
from tests.engine.engine_process import EngineProcess
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import request_for, write_model

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One warm process for all tests that leave it alive."""
    started = EngineProcess(tmp_path_factory.mktemp("engine"))
    yield started.warmed()
    started.end()


@pytest.fixture(scope="module")
def endless_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that never ends by itself within its long context."""

    def endless(model: object) -> None:
        model.lm_head.weight.data[:2] = 0.0  # type: ignore[attr-defined]

    return write_model(tmp_path_factory.mktemp("endless") / "model", change=endless, max_position_embeddings=8192)


def test_it_says_what_it_is_and_nothing_else(shared: EngineProcess) -> None:
    """Hears requests before the libraries are there; no library's print reaches the pipe."""
    first, warmed = shared.events[0], next(each for each in shared.events if isinstance(each, EngineWarmed))
    assert first == EngineStarted(shared.process.pid)
    assert {name for name, _ in warmed.versions} >= {"torch", "transformers", "accelerate"}
    assert shared.strange == []


def test_it_tells_accelerates_maps_and_that_there_are_none(
    shared: EngineProcess, model_folder: Folder, tmp_path: Path
) -> None:
    model = inspect_folder(model_folder("tied"))
    plan = make_plan(model, Machine((accelerator(), ram(), disk())), Budget(context=64))
    shared.send(StrategiesRequest(7, plan))
    found = shared.wait_for(StrategiesMapped)
    assert (found.number, found.trouble) == (7, "")
    assert [name for name, _ in found.maps] == list(ENGINE_STRATEGIES)
    assert all([layer for layer, _ in pairs] == [layer.name for layer in model.layers] for _, pairs in found.maps)
    strange = replace(plan, model=replace(model, folder="", name="strange"))
    shared.send(StrategiesRequest(8, strange, '{"model_type": "llama", "hidden_size": 7, "num_attention_heads": 3}'))
    refused = shared.wait_for(StrategiesMapped)
    assert (refused.number, refused.maps) == (8, ())
    assert refused.trouble


def test_it_surveys_loads_answers_and_unloads(shared: EngineProcess, model_folder: Folder, engine: TorchEngine) -> None:
    """F11: the same seed gives the same text in another process."""
    shared.send(SurveyRequest())
    assert {"cpu", "disk"} <= {each.id for each in shared.wait_for(DevicesSurveyed).machine.devices}
    request = request_for(model_folder("tied"))
    shared.send(request)
    assert len(shared.wait_for(ModelLoaded).placed) == len(request.placements)
    shared.send(text_request(seed=5, temperature=1.0))
    there = shared.wait_for(RunFinished).result
    engine.load(request, Events().job())
    assert there.tokens == ask(engine, seed=5, temperature=1.0).tokens
    shared.send(UnloadRequest())
    shared.wait_for(ModelUnloaded)
    shared.send(text_request())
    assert shared.wait_for(Failed).failure.kind == "BadRequest"
    assert shared.strange == []


def test_a_second_job_is_refused_and_stop_is_heard_while_busy(shared: EngineProcess, endless_folder: Path) -> None:
    """F01, F12: question, load and unload during a run are refused, the run goes on; stop frees it within a second."""
    shared.send(request_for(endless_folder, context=8192))
    shared.wait_for(ModelLoaded)
    shared.send(text_request(count=5000))
    shared.wait_for(TextProduced)
    for request in (text_request(), request_for(endless_folder), UnloadRequest()):
        shared.send(request)
        refused = shared.wait_for(Failed)
        assert (refused.failure.kind, refused.during) == ("Busy", type(request).__name__)
    shared.wait_for(TextProduced)
    stopped_at = time.monotonic()
    shared.send(StopRequest())
    result = shared.wait_for(RunFinished).result
    assert time.monotonic() - stopped_at < 1.0
    assert result.ended == "stopped"
    assert result.text
    shared.send(text_request(count=4))
    assert len(shared.wait_for(RunFinished).result.tokens) == 4


def test_a_stopped_load_leaves_it_ready(shared: EngineProcess, endless_folder: Path) -> None:
    """F13: stop right after the request; whether it was in time or not, the next load works."""
    shared.send(request_for(endless_folder))
    shared.send(StopRequest())
    ended = shared.wait_for(Failed, ModelLoaded)
    assert isinstance(ended, ModelLoaded) or ended.failure.stopped
    shared.send(request_for(endless_folder))
    shared.wait_for(ModelLoaded)


@pytest.mark.parametrize("stage", ["Reading the tokenizer", "Opening the weight files", "Loading weights"])
@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_a_load_hears_a_stop_at_every_stage_within_a_second(
    stage: str, place: str, shared: EngineProcess, endless_folder: Path
) -> None:
    """F13: the window may also end the process a moment later: nothing is left to be searched for garbage."""
    shared.send(request_for(endless_folder, lambda index, count: place))
    told = shared.wait_for(LoadProgressed, ModelLoaded)
    while isinstance(told, LoadProgressed) and told.stage != stage:
        told = shared.wait_for(LoadProgressed, ModelLoaded)
    stopped_at = time.monotonic()
    shared.send(StopRequest())
    ended = told if isinstance(told, ModelLoaded) else shared.wait_for(Failed, ModelLoaded)
    assert time.monotonic() - stopped_at < 1.0
    assert isinstance(ended, ModelLoaded) or ended.failure.stopped


def test_stop_with_nothing_to_stop_and_a_line_that_is_no_request(shared: EngineProcess, endless_folder: Path) -> None:
    shared.send(StopRequest())
    shared.write(b"not a request\n")
    assert shared.wait_for(Failed).failure.kind == "Unexpected"
    shared.send(request_for(endless_folder))
    shared.wait_for(ModelLoaded)
    shared.send(text_request(count=2))
    shared.wait_for(PromptCounted)
    assert len(shared.wait_for(RunFinished).result.tokens) == 2


def test_hanging_up_in_the_middle_of_a_load_leaves_nothing(tmp_path: Path) -> None:
    """B05: no process and no offload file, within a second."""
    folder = write_model(
        tmp_path / "model", "mixtral", num_hidden_layers=24, hidden_size=128, intermediate_size=512, head_dim=32
    )
    process = EngineProcess(tmp_path / "home").warmed()
    try:
        process.send(request_for(folder, lambda index, count: "disk"))
        while not process.wait_for(LoadProgressed, ModelLoaded).layers_done:  # type: ignore[union-attr]
            pass
        offload = tmp_path / "home" / "cache" / "offload"
        assert list(offload.glob("*/*.safetensors"))
        assert process.hang_up() < 1.0
        assert process.process.returncode == 0
        assert list(offload.iterdir()) == []
        assert not any(isinstance(event, ModelLoaded) for event in process.events)
    finally:
        process.end()


@pytest.mark.parametrize("how", ["hang up", "quit"])
def test_it_ends_while_the_libraries_are_still_importing(how: str, tmp_path: Path) -> None:
    """An import holds the interpreter for a moment at a time, never for long."""
    process = EngineProcess(tmp_path)
    try:
        process.wait_for(EngineStarted)
        if how == "quit":
            process.send(QuitRequest())
            process.process.wait(10)
        else:
            assert process.hang_up() < 5.0
        assert process.process.returncode == 0
    finally:
        process.end()


@pytest.mark.skipif(not hasattr(os, "nice"), reason="niceness is a matter of POSIX")
def test_it_steps_back_behind_the_window(shared: EngineProcess) -> None:
    assert os.getpriority(os.PRIO_PROCESS, shared.process.pid) >= os.getpriority(os.PRIO_PROCESS, 0) + 5 or (
        os.getpriority(os.PRIO_PROCESS, shared.process.pid) == 19
    )
