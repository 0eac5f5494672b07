"""What the map shows, as values: each place a lane, each layer and each claim on memory a unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerlight.core import memory
from layerlight.core.device import CPU, DISK, Device, Machine
from layerlight.core.machines import pressure
from layerlight.core.messages import LayerActivity, PlacedLayer, PlaceMemory
from layerlight.core.model import Layer, LayerKind
from layerlight.core.plan import Placement, PlaceUse, Plan
from layerlight.core.planning.runtime import RING_BUFFERS, STAGING_BUFFERS
from layerlight.core.state import Phase, State
from layerlight.core.unused_room import idle_words
from layerlight.ui.words import short_size

GRAIN = 256
"""Other programs' memory is shown in steps of this part of the whole: it never stands still, and nobody sees less."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One block of a lane. `size` is what its area stands for: weights and the KV cache beside them, in bytes."""

    key: str
    """The layer's name; `kv`, `working` and `berth` for the other claims."""
    label: str
    kind: str
    """`layer`, `experts` (of a layer), `table` (embedding, head, norms), `kv`, `working` or `berth`."""
    order: int
    """Position in the sweep; -1 for what is no layer."""
    size: int
    kv: int = 0
    state: str = "planned"
    """`planned`, `loading` or `resting`."""
    fill: float = 0.0
    rests_on: str = ""
    runs_on: str = ""
    index: int | None = None
    seconds: float = 0.0
    waited: float = 0.0
    pinned: bool = False
    experts: int = 0
    """How many experts it holds."""

    @property
    def carried(self) -> bool:
        return self.rests_on != self.runs_on


@dataclass(frozen=True, slots=True)
class Lane:
    """A place with all that lies on it. Sizes in bytes; `total` is None when nobody knows."""

    place: str
    hue: str
    title: str
    detail: str
    total: int | None
    units: tuple[Unit, ...] = ()
    margin: int = 0
    other: int = 0
    limit: int | None = None
    """What a person allows here."""
    over: int = 0
    spare: int | None = None
    """Free bytes of a disk."""
    note: str = ""
    """Measured against planned, in words; empty while nothing is measured."""
    idle: str = ""
    """Why the plan puts nothing here; empty when it does."""

    @property
    def taken(self) -> int:
        return sum(unit.size for unit in self.units)

    @property
    def used(self) -> int:
        return self.taken + self.margin + self.other

    @property
    def free(self) -> int | None:
        """Bytes left beside all of it; of a disk, what its file system says."""
        if self.place == DISK:
            return self.spare
        return None if self.total is None else self.total - self.used


def shown_plan(state: State, prefer_next: bool = False) -> Plan | None:
    """The plan that the map draws: of what is in memory, else the one being made; `prefer_next` turns that round."""
    if prefer_next and state.plan is not None:
        return state.plan
    return state.loaded_plan or state.plan


def lanes_of(state: State, prefer_next: bool = False, elsewhere: Machine | None = None) -> tuple[Lane, ...]:
    """Every place of the machine as a lane, in the order of the machine. Unified memory is one lane.

    `elsewhere` is the machine that is planned for in place of this one: nothing is measured there.
    """
    plan = shown_plan(state, prefer_next)
    real = state.loaded_plan if plan is state.loaded_plan else None
    machine = state.machine if real is not None or elsewhere is None else elsewhere
    if machine is None:
        return ()
    if machine is elsewhere:
        state = replace(state, memory=())
        if plan is not None and plan.machine is not machine:
            plan = None  # it is of the machine before; the new one is on its way
    units = _units(plan, state, real is not None) if plan is not None else {}
    lanes: list[Lane] = []
    for device in machine.devices:
        if device.id == CPU and any(each.shares_memory_with == CPU for each in machine.devices):
            continue
        lanes.append(_lane(device, machine, plan, units, state, real is not None))
    return tuple(lanes)


def hue_of(place: str, machine: Machine | None) -> str:
    """`gpu`, `gpu2`, `ram` or `disk`; accelerators take turns."""
    if place == CPU:
        return "ram"
    if place == DISK:
        return "disk"
    ids = [each.id for each in machine.accelerators] if machine else []
    return "gpu2" if place in ids and ids.index(place) % 2 else "gpu"


def title_of(device: Device) -> str:
    if device.shares_memory_with == CPU:
        return f"{device.name}, unified memory"
    return device.name or device.id


def short_name(layer: Layer) -> str:
    """`layer 7`, `embedding`, `output head`: how people call it."""
    match layer.kind:
        case LayerKind.DECODER:
            return f"layer {layer.index}"
        case LayerKind.EXPERTS:
            return f"experts of layer {layer.index}"
        case LayerKind.EMBEDDING:
            return "embedding"
        case LayerKind.HEAD:
            return "output head"
        case LayerKind.NORM:
            return "final norm"
        case _:
            return layer.name


# -- units -----------------------------------------------------------------------------------------------------------

_KINDS = {LayerKind.DECODER: "layer", LayerKind.EXPERTS: "experts"}


def _reads_pages(layer: Layer, runs: str) -> bool:
    """Whether the CPU computes with it in the file's own pages: nothing of it lands anywhere."""
    return layer.kind is LayerKind.EXPERTS and runs == CPU


def _units(plan: Plan, state: State, real: bool) -> dict[str, list[Unit]]:
    """Units by place, layers in the model's order."""
    placed = {each.layer: each for each in state.places} if real else {}
    activity = {each.layer: each for each in state.activity} if real else {}
    predicted = dict(plan.prediction.seconds_per_layer)
    measured = dict(state.result.seconds_per_layer) if real and state.result else {}
    arriving = _arriving(plan, state) if real and state.phase is Phase.LOADING else {}
    placements = {placement.layer: placement for placement in plan.placements}
    units: dict[str, list[Unit]] = {device.id: [] for device in plan.machine.devices}
    waits = {each.layer: each.waits for each in plan.prediction.carried}
    loose: dict[str, int] = {}
    pinned = {name for name, _ in plan.wishes.pins}
    carried = 0
    experts = (plan.model.shape.experts if plan.model.shape else None) or 0
    for order, layer in enumerate(plan.model.layers):
        placement = placements.get(layer.name)
        if placement is None:
            continue
        kv = _kv(plan, layer)
        rests, runs, size = _truth(placement, placed.get(layer.name))
        if rests != runs and not _reads_pages(layer, runs):
            loose[runs] = loose.get(runs, 0) + kv
            kv = 0
            carried = max(carried, (RING_BUFFERS if runs == CPU else STAGING_BUFFERS) * size)
        seconds, waited = _seconds(
            activity.get(layer.name),
            measured.get(layer.name),
            predicted.get(layer.name, 0.0),
            waits.get(layer.name, 0.0),
        )
        state_of, fill = _state(layer.name, placed, arriving, state, real)
        units.setdefault(rests, []).append(
            Unit(
                layer.name,
                short_name(layer),
                _KINDS.get(layer.kind, "table"),
                order,
                size + kv,
                kv,
                state_of,
                fill,
                rests,
                runs,
                layer.index,
                seconds,
                waited,
                layer.name in pinned,
                experts if layer.kind is LayerKind.EXPERTS else 0,
            )
        )
    _claims(plan, units, loose, carried, "resting" if real and state.phase is not Phase.LOADING else "planned")
    return units


def _claims(plan: Plan, units: dict[str, list[Unit]], loose: dict[str, int], carried: int, state: str) -> None:
    """KV cache of carried layers, the berth that they pass through, and working memory."""
    for use in plan.prediction.places:
        here = units.setdefault(use.place, [])
        if loose.get(use.place):
            here.append(Unit("kv", "KV cache", "kv", -1, loose[use.place], state=state))
        berth = min(carried, use.working) if loose.get(use.place) is not None and use.working else 0
        if berth:
            here.append(Unit("berth", "berth", "berth", -1, berth, state=state, runs_on=use.place))
        if use.working > berth:
            here.append(Unit("working", "working memory", "working", -1, use.working - berth, state=state))


def _truth(placement: Placement, placed: PlacedLayer | None) -> tuple[str, str, int]:
    if placed is None:
        return placement.rests_on, placement.runs_on, placement.size
    return placed.rests_on, placed.runs_on, placed.size


def _state(
    name: str, placed: dict[str, PlacedLayer], arriving: dict[str, float], state: State, real: bool
) -> tuple[str, float]:
    if name in placed:
        return "resting", 1.0
    if name in arriving:
        return "loading", arriving[name]
    if real and state.phase is not Phase.LOADING and not state.places:
        return "resting", 1.0
    return "planned", 0.0


def _arriving(plan: Plan, state: State) -> dict[str, float]:
    """The share of each layer that is on its way: bytes read so far, given to the layers in the plan's order.

    Layers that have been placed, and measured there, are not among them.
    """
    if state.progress is None:
        return {}
    there = {each.layer for each in state.places}
    left = state.progress.bytes_done - sum(each.size for each in state.places)
    shares: dict[str, float] = {}
    for placement in plan.placements:
        if left <= 0:
            break
        if placement.layer not in there and placement.size:
            shares[placement.layer] = min(1.0, left / placement.size)
            left -= placement.size
    return shares


def _seconds(
    activity: LayerActivity | None, measured: float | None, predicted: float, waits: float
) -> tuple[float, float]:
    """(seconds a token, of them waiting): measured now, else in the last run, else predicted."""
    if activity is not None and activity.passes:
        seconds = activity.last_seconds or activity.seconds / activity.passes
        share = activity.waited / activity.seconds if activity.seconds else 0.0
        return seconds, seconds * share
    return (measured, 0.0) if measured is not None else (predicted, waits)


def _kv(plan: Plan, layer: Layer) -> int:
    if plan.model.shape is None or layer.kind is not LayerKind.DECODER or layer.index is None:
        return 0
    kept_in = plan.wishes.kv or None
    return memory.kv_bytes(plan.model.shape, layer.index, plan.budget.context, plan.dtype, cache=kept_in)


# -- lanes -----------------------------------------------------------------------------------------------------------


def _lane(
    device: Device, machine: Machine, plan: Plan | None, units: dict[str, list[Unit]], state: State, real: bool
) -> Lane:
    use = next((each for each in plan.prediction.places if each.place == device.id), None) if plan else None
    measured = next((each for each in state.memory if each.place == device.id), None)
    here = tuple(units.get(device.id, ()))
    if device.shares_memory_with == CPU:
        here += tuple(units.get(CPU, ()))
    margin = 0 if device.kind == DISK else use.margin if use else memory.margin(device)
    return Lane(
        device.id,
        hue_of(device.id, machine),
        title_of(device),
        device.note,
        device.total,
        here,
        margin,
        0 if device.kind == DISK else _other(device, measured),
        plan.budget.limit(device.id) if plan else None,
        use.over if use else 0,
        device.free if device.kind == DISK else None,
        _note(use, measured, here, state.result is not None)
        if real and use and measured and state.phase is not Phase.LOADING
        else "",
        idle_words(plan, device.id) if plan and use and not here else "",
    )


def _other(device: Device, measured: PlaceMemory | None) -> int:
    """Bytes that neither we nor anyone else can have: in use by other programs, as far as that can be told."""
    total = measured.total if measured and measured.total is not None else device.total
    free = measured.free if measured and measured.free is not None else device.free
    if total is None or free is None:
        return 0
    ours = pressure.ours(measured) if measured is not None else 0
    step = total // GRAIN or 1
    return max(0, total - free - ours) // step * step


def _note(use: PlaceUse, measured: PlaceMemory, units: tuple[Unit, ...], ran: bool) -> str:
    """Measured against planned: the peak of an accelerator once something ran there, else the weights."""
    if not units:
        return ""
    peak = measured.peak if ran and use.place not in (CPU, DISK) else None
    what, found, planned = ("weights", measured.model, use.weights) if peak is None else ("peak", peak, use.used)
    if planned == found or abs(found - planned) * 100 < planned:
        return f"{what} as planned, {short_size(found)}"
    side = "above" if found > planned else "below"
    return f"{what} {short_size(abs(found - planned))} {side} the plan"
