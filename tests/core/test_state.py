"""Events folded into a State."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from layerlight.core.device import Budget
from layerlight.core.errors import LoadFailed, Stopped
from layerlight.core.messages import (
    CalibrationProgressed,
    DevicesSurveyed,
    EngineStarted,
    EngineStopped,
    EngineWarmed,
    Event,
    Failed,
    Failure,
    LayerActivity,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    LoadStarted,
    MachineCalibrated,
    ModelInspected,
    ModelLoaded,
    ModelUnloaded,
    PlacedLayer,
    Planned,
    PromptCounted,
    RunFinished,
    RunResult,
    StarterProgressed,
    StarterReady,
    TextProduced,
)
from layerlight.core.placing import make_plan
from layerlight.core.state import Phase, State, apply
from tests.core.models import dense, machine

PLAN = make_plan(dense(), machine(), Budget(context=128))
PLACED = PlacedLayer("model.layers.0", "cpu", "cpu", 10, "bfloat16")
READY: tuple[Event, ...] = (
    EngineStarted(1),
    EngineWarmed((("torch", "2.13.0"),), 1.0),
    DevicesSurveyed(machine()),
    ModelInspected(dense()),
    Planned(PLAN),
    LoadStarted("/a", 100, 6),
    LayerPlaced(PLACED),
    ModelLoaded("/a", 1.0, (PLACED,), ()),
)
RESULT = RunResult("Paris.", (1, 2), 5, 7, "end token", 1.0, 0.1, 9.0)


def fold(*events: Event, start: State | None = None) -> State:
    return reduce(apply, events, start or State())


def test_a_load_ends_ready_with_what_was_measured() -> None:
    state = fold(*READY)
    assert (state.phase, state.loaded, state.places, state.loaded_plan) == (Phase.READY, "/a", (PLACED,), PLAN)


def test_progress_only_rises() -> None:
    """H06."""
    state = fold(LoadStarted("/a", 100, 6), LoadProgressed("x", 50, 100, 3, 6), LoadProgressed("y", 10, 100, 1, 6))
    assert state.progress is not None
    assert (state.progress.bytes_done, state.progress.layers_done, state.progress.stage) == (50, 3, "y")


def test_a_layer_that_is_told_again_stays_one() -> None:
    """Pages of a file that became the process's own are told anew after an answer."""
    other = replace(PLACED, layer="model.layers.1")
    resident = replace(PLACED, mapped=False)
    mapped = (replace(PLACED, mapped=True), other)
    state = fold(LayerPlaced(resident), start=fold(*READY, ModelLoaded("/a", 1.0, mapped, ())))
    assert state.places == (resident, other)


def test_a_load_that_fails_leaves_nothing_loaded() -> None:
    """H17: after B failed, A is not shown as active when it is gone."""
    state = fold(LoadStarted("/b", 100, 6), Failed(Failure.of(LoadFailed("no")), "LoadRequest"), start=fold(*READY))
    assert (state.phase, state.loaded, state.places) == (Phase.EMPTY, None, ())
    assert state.error is not None


def test_a_cancelled_load_is_no_error() -> None:
    state = fold(LoadStarted("/b", 100, 6), Failed(Failure.of(Stopped()), "LoadRequest"))
    assert (state.phase, state.error, state.progress) == (Phase.EMPTY, None, None)


def test_a_run_that_fails_keeps_the_model() -> None:
    state = fold(
        PromptCounted(3, 128, 125), TextProduced("Pa", (1,)), Failed(Failure.of(LoadFailed("no"))), start=fold(*READY)
    )
    assert (state.phase, state.loaded, state.answer) == (Phase.READY, "/a", "Pa")


def test_an_answer_grows_and_ends_as_the_result() -> None:
    state = fold(PromptCounted(3, 128, 125), TextProduced("Par", (1,)), TextProduced("is", (2,)), start=fold(*READY))
    assert (state.phase, state.answer) == (Phase.RUNNING, "Paris")
    state = fold(RunFinished(RESULT), start=state)
    assert (state.phase, state.answer, state.running) == (Phase.READY, "Paris.", None)


def test_layer_activity_is_the_newest_snapshot() -> None:
    activity = (LayerActivity("model.layers.0", 3, 0.5),)
    state = fold(PromptCounted(3, 128, 125), LayerRan("model.layers.0", activity), start=fold(*READY))
    assert (state.running, state.activity) == ("model.layers.0", activity)


def test_the_engine_dying_is_told_once_and_truly() -> None:
    state = fold(EngineStopped(expected=False, reason="killed"), start=fold(*READY))
    assert (state.engine_running, state.loaded, state.phase) == (False, None, Phase.EMPTY)
    assert state.error is not None
    assert "killed" in state.error.message
    assert state.plan == PLAN, "what was planned is kept"


def test_an_engine_that_was_asked_to_end_is_no_error() -> None:
    assert fold(EngineStopped(expected=True), start=fold(*READY)).error is None


def test_unload_and_starter() -> None:
    assert fold(ModelUnloaded(()), start=fold(*READY)).loaded is None
    state = fold(StarterProgressed("Downloading", 1, 9), start=fold(*READY))
    assert state.phase is Phase.FETCHING
    assert state.busy
    assert fold(StarterReady("/s", "Apache-2.0"), start=state).phase is Phase.READY


def test_a_new_model_forgets_the_old_plan() -> None:
    assert fold(ModelInspected(dense(layers=6)), start=fold(*READY)).plan is None


def test_a_calibration_keeps_the_model_and_gives_the_machine_its_rates() -> None:
    before = fold(*READY)
    during = fold(CalibrationProgressed("Memory", 1.0, 15.0), start=before)
    assert (during.phase, during.busy, during.loaded) == (Phase.CALIBRATING, True, "/a")
    measured = replace(machine(), bandwidths=(("cpu", 9e9),))
    after = fold(MachineCalibrated(measured, 14.0), start=during)
    assert (after.phase, after.calibrating, after.machine) == (Phase.READY, None, measured)
    stopped = fold(Failed(Failure.of(Stopped()), "CalibrateRequest"), start=during)
    assert (stopped.phase, stopped.calibrating, stopped.error) == (Phase.READY, None, None)
