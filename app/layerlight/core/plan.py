"""The plan: where every layer rests, where it runs, why, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerlight.core.device import Budget, Machine
from layerlight.core.model import Model
from layerlight.core.planning.workload import USUAL, Workload
from layerlight.core.sizing.attention import attention_for

DEFAULT_CONTEXT = 4096
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person asks of a plan beside its limits; the defaults leave the choice to the plan."""

    dtype: str | None = None
    quantization: str | None = None
    attention: str = "sdpa"
    map: tuple[tuple[str, str], ...] = ()
    """(layer, place) by hand; when given it must name every layer of the model."""
    pins: tuple[tuple[str, str], ...] = ()
    """(which layers, place): these rest there and the rest is planned around them. See `pins.parse_pin`."""
    strategy: str = "fastest"
    """`fastest`, `most-on-gpu`, or one of accelerate's names, which only the engine can work out."""
    workload: Workload = USUAL
    """What the plan is made fast for; it shrinks to a context that is shorter."""
    kv: str = ""
    """What keys and values are kept in: `fp8`, or the dtype they are computed in when empty. See `kv_choice`."""

    @property
    def freed(self) -> Wishes:
        """The same with every place left to the plan: nothing by hand, nothing by accelerate."""
        return replace(self, map=(), pins=(), strategy="fastest" if self.map else self.strategy)


@dataclass(frozen=True, slots=True)
class Placement:
    """One layer's place. `size` is its bytes once loaded, `dtype` what it is loaded in (`nf4`, … when quantised)."""

    layer: str
    rests_on: str
    runs_on: str
    reason: str
    size: int
    dtype: str


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """Predicted bytes on one place. `capacity` is what the plan may use there; None when nobody knows."""

    place: str
    weights: int
    kv: int
    working: int
    margin: int
    capacity: int | None

    @property
    def used(self) -> int:
        return self.weights + self.kv + self.working

    @property
    def over(self) -> int:
        """Bytes that do not fit; 0 when they do."""
        return 0 if self.capacity is None else max(0, self.used - self.capacity)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Where hidden states go from one device to the next: before this layer, so many bytes a token."""

    layer: str
    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Carried:
    """What a decode pass brings of a layer that rests elsewhere than it runs, and how long it waits for it."""

    layer: str
    bytes: int
    waits: float
    """Seconds in which nothing works because these bytes are not there yet: part of the layer's own."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What earlier runs made of a prediction: factors that are in its seconds already."""

    per_token: float = 1.0
    prefill: float = 1.0
    load: float = 1.0
    last_time: float | None = None
    """Seconds a token that the same model in the same placement took last time."""
    runs: int = 0
    """Runs that it stands on."""
    tokens_a_pass: float | None = None
    """What a pass of this model gave the last time that it ran with prompt lookup."""


UNCORRECTED = Correction()


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the plan will cost: bytes per place at the peak, seconds a token in decode, seconds to load."""

    places: tuple[PlaceUse, ...]
    seconds_per_token: float
    load_seconds: float
    seconds_per_layer: tuple[tuple[str, float], ...]
    calibrated: bool
    """False when the seconds stand on typical figures, not on this machine's own."""
    prefill_seconds: float = 0.0
    """Seconds over the workload's prompt, until the first token."""
    workload_seconds: float = 0.0
    """Prompt and answer of the workload: what the placement was chosen by."""
    gap: float = 0.0
    """How much faster, as a part of `workload_seconds`, a better placement could at most be; 0 when there is none."""
    hand_overs: tuple[HandOver, ...] = ()
    carried: tuple[Carried, ...] = ()
    correction: Correction = UNCORRECTED

    def use(self, place: str) -> PlaceUse:
        return next(use for use in self.places if use.place == place)


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete answer for one model on one machine. `checked` once the empty model has confirmed names and bytes."""

    model: Model
    machine: Machine
    budget: Budget
    wishes: Wishes
    dtype: str
    placements: tuple[Placement, ...]
    prediction: Prediction
    prefill_chunk: int = PREFILL_CHUNK
    checked: bool = False
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.shortfall == 0

    @property
    def shortfall(self) -> int:
        """Bytes that have no place; 0 when all have one."""
        return sum(use.over for use in self.prediction.places)

    @property
    def places(self) -> tuple[str, ...]:
        """Places that hold at least one layer, in the machine's order."""
        used = {placement.rests_on for placement in self.placements}
        return tuple(device.id for device in self.machine.devices if device.id in used)

    @property
    def attention(self) -> str:
        """What the model is run with: the wish, or `eager` where its type allows nothing else."""
        return attention_for(self.model.shape.model_type if self.model.shape else "", self.wishes.attention)

    def device_map(self) -> dict[str, str]:
        """Layer → place, complete, as transformers' `device_map` takes it."""
        return {placement.layer: placement.rests_on for placement in self.placements}

    def bytes_on(self, place: str) -> int:
        """Weight bytes that rest on a place."""
        return sum(placement.size for placement in self.placements if placement.rests_on == place)

    def placement(self, layer: str) -> Placement:
        return next(placement for placement in self.placements if placement.layer == layer)
