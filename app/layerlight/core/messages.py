"""All that is said between the wings: requests down, events up, each one JSON line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from layerlight.core.device import Machine
from layerlight.core.errors import LayerlightError
from layerlight.core.model import Model
from layerlight.core.plan import Placement, Plan
from layerlight.core.sizing.told_bytes import ToldBytes

# -- requests: present tense, complete, so that each can be saved and repeated ---------------------------------------


@dataclass(frozen=True, slots=True)
class SurveyRequest:
    """Find the devices and read their memory. Answered by DevicesSurveyed."""


@dataclass(frozen=True, slots=True)
class CalibrateRequest:
    """Measure how fast this machine is. Answered by CalibrationProgressed …, then MachineCalibrated."""

    folder: str | None = None
    """Where layers would rest on disk: that disk is measured; None is the person's cache folder."""
    seconds: float = 15.0
    """No new measurement begins when it could end later than this."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Load a model as planned. Answered by LoadStarted, LoadProgressed, LayerPlaced …, then ModelLoaded."""

    folder: str
    placements: tuple[Placement, ...]
    dtype: str
    """torch's name of the dtype that weights are loaded in."""
    context: int
    quantization: str | None = None
    """`nf4`, `fp4` or `int8`, done while loading; None loads the weights as they are."""
    attention: str = "sdpa"
    """`eager` or `sdpa`."""
    prefill_chunk: int = 512
    """Tokens of the prompt computed in one pass."""
    offload_folder: str | None = None
    kv: str = ""
    """What keys and values are kept in: `fp8`, or `dtype` when empty."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Answered by TextProduced … and RunFinished. A chat when the model has a template, else plain completion."""

    messages: tuple[ChatMessage, ...]
    seed: int
    max_new_tokens: int = 512
    temperature: float = 0.7
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    repetition_penalty: float = 1.0
    prompt_lookup: int = 0
    """Tokens to draft from the text so far and check in one pass; 0 is off."""


@dataclass(frozen=True, slots=True)
class UnloadRequest:
    """Drop the model and give its memory back. Answered by ModelUnloaded."""


@dataclass(frozen=True, slots=True)
class StarterRequest:
    """Fetch a starter model into the data folder. Answered by StarterProgressed … and StarterReady."""

    kind: str = "text"
    folder: str | None = None
    """Where starter models live; None is the person's data folder."""


@dataclass(frozen=True, slots=True)
class StrategiesRequest:
    """Where would accelerate put the layers, by each of its own strategies? Answered by StrategiesMapped."""

    number: int
    """Tells the answer which question it is for."""
    plan: Plan
    """One of ours: its model, machine, budget, dtype and quantisation are asked about."""
    config: str | None = None
    """JSON of config.json for a model without a folder."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Stop the running job at its next boundary; heard while busy. The job ends with RunFinished or Failed(stopped)."""


@dataclass(frozen=True, slots=True)
class QuitRequest:
    """End the engine process."""


Request = (
    SurveyRequest
    | CalibrateRequest
    | LoadRequest
    | TextRequest
    | UnloadRequest
    | StarterRequest
    | StrategiesRequest
    | StopRequest
    | QuitRequest
)

# -- events: past tense, measured ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """The engine process hears requests; libraries may still be importing (see EngineWarmed)."""

    pid: int


@dataclass(frozen=True, slots=True)
class EngineWarmed:
    """Imports are done. `versions` are (package, version)."""

    versions: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DevicesSurveyed:
    machine: Machine


@dataclass(frozen=True, slots=True)
class CalibrationProgressed:
    stage: str
    """What is measured now, in words."""
    done: float
    total: float
    """Seconds gone, and seconds that it takes at most."""


@dataclass(frozen=True, slots=True)
class MachineCalibrated:
    """The machine with its rates in `bandwidths`; a rate that could not be measured is absent."""

    machine: Machine
    seconds: float
    spreads: tuple[tuple[str, float], ...] = ()
    """(rate, how far its samples lay apart as a part of their median)."""


@dataclass(frozen=True, slots=True)
class ModelInspected:
    model: Model


@dataclass(frozen=True, slots=True)
class ModelChecked:
    """What the empty model told: exact names and bytes. `missing` and `extra` are layer names against the plan."""

    folder: str
    layers: tuple[tuple[str, int], ...]
    """(layer, bytes as it will be loaded)."""
    kv_bytes: int
    """Bytes of the KV cache at the plan's context."""
    unquantized: tuple[str, ...] = ()
    """Modules that stay as they are although quantising was asked for."""
    told: ToldBytes | None = None
    """All of it as plans take it: kept with the model, it goes before their own formulas."""


@dataclass(frozen=True, slots=True)
class Planned:
    plan: Plan


@dataclass(frozen=True, slots=True)
class StrategiesMapped:
    """accelerate's own maps, not promised to fit; none where its libraries can't tell, and why."""

    number: int
    maps: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """(strategy, (layer, place) of every layer)."""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class LoadStarted:
    folder: str
    bytes_total: int
    layers_total: int


@dataclass(frozen=True, slots=True)
class LoadProgressed:
    stage: str
    """What happens now, in words."""
    bytes_done: int
    bytes_total: int
    layers_done: int
    layers_total: int
    seconds_left: float | None = None
    layer: str = ""
    """The layer whose weights are being read now; empty between layers."""


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """Where a layer's storages really are, read from them. `size` in bytes."""

    layer: str
    rests_on: str
    runs_on: str
    size: int
    dtype: str
    mapped: bool = False
    """True when the bytes are a view into the model's file (clean pages the system may take back)."""


@dataclass(frozen=True, slots=True)
class LayerPlaced:
    placed: PlacedLayer


@dataclass(frozen=True, slots=True)
class PlaceMemory:
    """Bytes on one place, measured; None where it can't be read."""

    place: str
    total: int | None
    free: int | None
    model: int
    """Bytes of the loaded model's weights and buffers resting there."""
    peak: int | None = None
    """The most that the device's own allocator held since the load began; for cpu the process's peak."""
    process: int | None = None
    """Bytes the engine process holds there: allocator's figure, for cpu resident memory."""
    anonymous: int | None = None
    """Of the process's RAM, the part that is not a view of a file."""
    before: int | None = None
    """Of `process` and `peak`, what the engine held there itself when the last load began."""

    @property
    def rise(self) -> int | None:
        """The most that model, cache and work took there: what a plan predicts."""
        return None if self.peak is None or self.before is None else max(0, self.peak - self.before)


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    places: tuple[PlaceMemory, ...]


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    folder: str
    seconds: float
    placed: tuple[PlacedLayer, ...]
    memory: tuple[PlaceMemory, ...]


@dataclass(frozen=True, slots=True)
class LayerActivity:
    """Totals of one layer since the run began, seconds and bytes."""

    layer: str
    passes: int
    seconds: float
    waited: float = 0.0
    """Of the seconds, those spent bringing weights to where they run."""
    bytes_moved: int = 0
    last_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LayerRan:
    """A snapshot of all layers, at most 30 a second."""

    running: str | None
    activity: tuple[LayerActivity, ...]


@dataclass(frozen=True, slots=True)
class PromptCounted:
    """Tokens of the prompt, before it runs, and what the context leaves for the answer."""

    prompt_tokens: int
    context: int
    room: int
    reused: int = 0
    """Of the prompt's tokens, those that the answer before left in the KV cache: they don't run again."""


@dataclass(frozen=True, slots=True)
class TextProduced:
    """Whole characters only; `tokens` are the ids since the last event."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drafts:
    """Tokens drafted by prompt lookup: how many passes checked some, how many there were, how many were right."""

    passes: int
    drafted: int
    accepted: int

    @property
    def tokens_a_pass(self) -> float | None:
        """What a pass gave on average: the right ones, and one of the model's own."""
        return 1 + self.accepted / self.passes if self.passes else None


@dataclass(frozen=True, slots=True)
class RunResult:
    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    seed: int
    ended: str
    """`end token`, `length`, `context` or `stopped`."""
    seconds: float
    time_to_first_token: float | None
    tokens_per_second: float | None
    """Decode speed after the first token."""
    seconds_per_layer: tuple[tuple[str, float], ...] = ()
    """(layer, mean seconds a decode pass)."""
    memory: tuple[PlaceMemory, ...] = ()
    reused: int = 0
    """Of the prompt's tokens, those that the answer before had left in the KV cache."""
    recomputed: int = 0
    """Tokens that ran a second time, in smaller passes, because memory had run out once."""
    drafts: Drafts | None = None
    """None without prompt lookup."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was particular about the run, in words."""
        kept = f"{self.reused:,} of {self.prompt_tokens:,} prompt tokens were kept" if self.reused else ""
        lost = f"memory ran out once, and {self.recomputed:,} tokens were computed again" if self.recomputed else ""
        return tuple(words for words in (kept, lost, self._drafted) if words)

    @property
    def _drafted(self) -> str:
        drafts = self.drafts
        if drafts is None or not drafts.tokens_a_pass:
            return ""
        right = f"{drafts.accepted:,} of {drafts.drafted:,} drafted tokens were right"
        return f"{drafts.tokens_a_pass:.1f} tokens a pass, as {right}"


@dataclass(frozen=True, slots=True)
class RunFinished:
    result: RunResult


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    memory: tuple[PlaceMemory, ...]
    returned: tuple[tuple[str, int], ...] = ()
    """(place, bytes seen coming back)."""


@dataclass(frozen=True, slots=True)
class StarterProgressed:
    stage: str
    """What happens now, in words."""
    done: int
    """Bytes fetched, unpacked and converted by now, of `total`: it rises over all stages."""
    total: int
    licence: str = ""


@dataclass(frozen=True, slots=True)
class StarterReady:
    folder: str
    licence: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A LayerlightError as a value. `kind` is the error's class name."""

    title: str
    message: str
    hint: str
    kind: str

    @classmethod
    def of(cls, error: LayerlightError) -> Failure:
        return cls(error.title, error.message, error.hint, type(error).__name__)

    @property
    def stopped(self) -> bool:
        return self.kind == "Stopped"


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed. `during` is its type's name (`LoadRequest`, …)."""

    failure: Failure
    during: str = ""


@dataclass(frozen=True, slots=True)
class EngineStopped:
    """The engine process ended: asked to (`expected`), or died."""

    expected: bool
    reason: str = ""


Event = (
    EngineStarted
    | EngineWarmed
    | DevicesSurveyed
    | CalibrationProgressed
    | MachineCalibrated
    | ModelInspected
    | ModelChecked
    | Planned
    | StrategiesMapped
    | LoadStarted
    | LoadProgressed
    | LayerPlaced
    | MemoryMeasured
    | ModelLoaded
    | LayerRan
    | PromptCounted
    | TextProduced
    | RunFinished
    | ModelUnloaded
    | StarterProgressed
    | StarterReady
    | Failed
    | EngineStopped
)

# -- one line each ---------------------------------------------------------------------------------------------------

_REQUESTS = {kind.__name__: kind for kind in get_args(Request)}
_EVENTS = {kind.__name__: kind for kind in get_args(Event)}


def encode(message: Request | Event) -> bytes:
    """One JSON line, newline included: {"is": the type's name, "of": its fields}."""
    envelope = {"is": type(message).__name__, "of": message}
    try:
        return msgspec.json.encode(envelope) + b"\n"
    except UnicodeEncodeError:  # half an emoji that was pasted, a folder whose name is no UTF-8
        return json.dumps(msgspec.to_builtins(envelope)).encode() + b"\n"


def decode_request(line: bytes) -> Request:
    """The request in this line. Raises ValueError when it is none."""
    found: Request = _decode(line, _REQUESTS)
    return found


def decode_event(line: bytes) -> Event:
    """The event in this line. Raises ValueError when it is none."""
    found: Event = _decode(line, _EVENTS)
    return found


def _decode(line: bytes, kinds: dict[str, Any]) -> Any:
    try:
        return _opened(msgspec.json.decode(line), kinds)
    except msgspec.DecodeError:
        return _decode_with_halves(line, kinds)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise ValueError(f"not a message: {line[:80]!r}") from error


def _decode_with_halves(line: bytes, kinds: dict[str, Any]) -> Any:
    """The standard library reads lone surrogates, which msgspec refuses."""
    try:
        return _opened(json.loads(line), kinds)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a message: {line[:80]!r}") from error


def _opened(envelope: Any, kinds: dict[str, Any]) -> Any:
    return msgspec.convert(envelope["of"], kinds[envelope["is"]])
