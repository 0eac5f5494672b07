"""State and apply(state, event) → State: all that the views know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from layerlight.core.device import Machine
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
    MemoryMeasured,
    ModelChecked,
    ModelInspected,
    ModelLoaded,
    ModelUnloaded,
    PlacedLayer,
    PlaceMemory,
    Planned,
    PromptCounted,
    RunFinished,
    RunResult,
    StarterProgressed,
    StarterReady,
    StrategiesMapped,
    TextProduced,
)
from layerlight.core.model import Model
from layerlight.core.plan import Plan
from layerlight.core.sizing.told_bytes import with_answer


class Phase(StrEnum):
    EMPTY = "empty"
    """No model loaded; one may be planned."""
    FETCHING = "fetching"
    CALIBRATING = "calibrating"
    LOADING = "loading"
    READY = "ready"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class State:
    """What is true now. `loaded` names the folder that is really in memory, whatever is planned."""

    phase: Phase = Phase.EMPTY
    engine_running: bool = False
    engine_warm: bool = False
    versions: tuple[tuple[str, str], ...] = ()
    machine: Machine | None = None
    model: Model | None = None
    plan: Plan | None = None
    checked: ModelChecked | None = None
    loaded: str | None = None
    loaded_plan: Plan | None = None
    """The plan that the model in memory was loaded by; a later plan may differ."""
    progress: LoadProgressed | None = None
    fetching: StarterProgressed | None = None
    calibrating: CalibrationProgressed | None = None
    places: tuple[PlacedLayer, ...] = ()
    """Measured, in the order they arrived."""
    running: str | None = None
    activity: tuple[LayerActivity, ...] = ()
    memory: tuple[PlaceMemory, ...] = ()
    counted: PromptCounted | None = None
    answer: str = ""
    result: RunResult | None = None
    error: Failure | None = None

    @property
    def busy(self) -> bool:
        return self.phase in (Phase.FETCHING, Phase.CALIBRATING, Phase.LOADING, Phase.RUNNING)


def apply(state: State, event: Event) -> State:
    """The state after an event. Pure; every event has its case."""
    match event:
        case EngineStarted():
            return replace(state, engine_running=True, engine_warm=False)
        case EngineWarmed(versions=versions):
            return replace(state, engine_warm=True, versions=versions)
        case DevicesSurveyed(machine=machine):
            return replace(state, machine=machine)
        case CalibrationProgressed():
            return replace(state, phase=Phase.CALIBRATING, calibrating=event, error=None)
        case MachineCalibrated(machine=machine):
            return replace(state, phase=_rest(state), calibrating=None, machine=machine)
        case ModelInspected(model=model):
            return replace(state, model=model, plan=None, checked=None, error=None)
        case Planned(plan=plan):
            return replace(state, plan=plan)
        case ModelChecked():
            return replace(_told(state, event), checked=event)
        case StrategiesMapped():
            return state  # what is planned changes when it is chosen
        case StarterProgressed():
            return replace(state, phase=Phase.FETCHING, fetching=event, error=None)
        case StarterReady():
            return replace(state, phase=_rest(state), fetching=None)
        case LoadStarted(bytes_total=size, layers_total=layers):
            progress = LoadProgressed("Starting", 0, size, 0, layers)
            return replace(_forget(state), phase=Phase.LOADING, loaded_plan=state.plan, progress=progress, error=None)
        case LoadProgressed():
            return replace(state, progress=_rising(state.progress, event))
        case LayerPlaced(placed=placed):
            return replace(state, places=_with(state.places, placed))
        case ModelLoaded(folder=folder, placed=placed_all, memory=memory):
            return replace(state, phase=Phase.READY, loaded=folder, places=placed_all, memory=memory, progress=None)
        case MemoryMeasured(places=places):
            return replace(state, memory=places)
        case PromptCounted():
            return replace(
                state, phase=Phase.RUNNING, counted=event, answer="", result=None, error=None, activity=(), running=None
            )
        case LayerRan(running=running, activity=activity):
            return replace(state, running=running, activity=activity)
        case TextProduced(text=text):
            return replace(state, answer=state.answer + text)
        case RunFinished(result=result):
            memory = result.memory or state.memory
            return replace(
                state, phase=Phase.READY, running=None, result=result, answer=result.text, memory=memory, counted=None
            )
        case ModelUnloaded(memory=memory):
            return replace(_forget(state), phase=Phase.EMPTY, memory=memory)
        case Failed(failure=failure):
            return _failed(state, failure)
        case EngineStopped(expected=expected):
            return _engine_stopped(state, event) if not expected else replace(_forget(state), engine_running=False)
        case _:
            assert_never(event)


def _with(places: tuple[PlacedLayer, ...], placed: PlacedLayer) -> tuple[PlacedLayer, ...]:
    """A layer that is told again stays where it stood among the others."""
    if all(each.layer != placed.layer for each in places):
        return (*places, placed)
    return tuple(placed if each.layer == placed.layer else each for each in places)


def _told(state: State, event: ModelChecked) -> State:
    """What the empty model said is kept with the model it was asked about: later plans stand on it."""
    model = state.model
    if model is None or event.told is None or model.folder != event.folder:
        return state
    return replace(state, model=replace(model, told=with_answer(model.told, event.told)))


def _rest(state: State) -> Phase:
    return Phase.READY if state.loaded else Phase.EMPTY


def _forget(state: State) -> State:
    """Nothing is in memory: what was measured there is no longer true."""
    return replace(
        state, phase=Phase.EMPTY, loaded=None, loaded_plan=None, places=(), running=None, activity=(), progress=None,
        counted=None, calibrating=None,
    )  # fmt: skip


def _rising(before: LoadProgressed | None, now: LoadProgressed) -> LoadProgressed:
    """Progress only rises, whatever order it is told in."""
    if before is None:
        return now
    return replace(
        now,
        bytes_done=max(before.bytes_done, now.bytes_done),
        layers_done=max(before.layers_done, now.layers_done),
    )


def _failed(state: State, failure: Failure) -> State:
    error = None if failure.stopped else failure
    match state.phase:
        case Phase.LOADING:
            return replace(_forget(state), error=error)
        case _:
            return replace(
                state,
                phase=_rest(state),
                fetching=None,
                calibrating=None,
                running=None,
                progress=None,
                counted=None,
                error=error,
            )


def _engine_stopped(state: State, event: EngineStopped) -> State:
    failure = Failure(
        "The engine stopped",
        event.reason or "Its process ended without a word.",
        "Nothing of yours is lost. Load the model again; a new engine is already starting.",
        "EngineDied",
    )
    return replace(_forget(state), engine_running=False, engine_warm=False, fetching=None, error=failure)
