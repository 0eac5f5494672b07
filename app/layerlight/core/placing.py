"""Planning: (Model, Machine, Budget, Wishes) → Plan, fastest place first, whole layers only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from layerlight.core import memory, speed
from layerlight.core.device import CPU, DISK, Budget, Device, Machine, format_size
from layerlight.core.errors import BadRequest, DoesNotFit, MapMismatch, UnknownPlace, WrongKindOfModel
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, Layer, LayerKind, Model, TextShape
from layerlight.core.plan import (
    DEFAULT_CONTEXT,
    PREFILL_CHUNK,
    Placement,
    PlaceUse,
    Plan,
    Prediction,
    Wishes,
)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Layers that move together, with their loaded bytes and their share of the KV cache."""

    layers: tuple[Layer, ...]
    size: int
    kv: int
    tensor: int
    """Bytes of the largest tensor: what streaming it needs at its destination."""


@dataclass(frozen=True, slots=True)
class _Room:
    """A place the plan may use: what it may take there, None when unlimited."""

    device: Device
    capacity: int | None
    why: str


def make_plan(model: Model, machine: Machine, budget: Budget, wishes: Wishes | None = None) -> Plan:
    """The plan for a language model. It may not fit: ask `plan.fits`, or call `require_fit`.

    Raises WrongKindOfModel when no plan could ever run it, BadRequest for a wish that can't be met, UnknownPlace and
    MapMismatch for limits and maps of another machine or model.
    """
    wishes = wishes or Wishes()
    shape = _shape_of(model)
    _check_wishes(model, machine, budget, wishes)
    rooms = _rooms(machine, budget)
    dtype, notes = _dtype(model, rooms, wishes)
    units = _units(model, shape, budget.context, dtype, wishes.quantization)
    working = memory.working_bytes(shape, budget.context, dtype, wishes.attention, PREFILL_CHUNK)
    if wishes.map:
        chosen, reasons = _by_hand(units, rooms, dict(wishes.map))
    else:
        chosen, reasons = _fill(units, rooms, working, wishes.quantization)
    placements = _placements(units, chosen, reasons, dtype, wishes.quantization)
    prediction = _predict(machine, budget, units, chosen, rooms, working)
    return Plan(model, machine, budget, wishes, dtype, placements, prediction, notes=notes)


def require_fit(plan: Plan) -> Plan:
    """The same plan. Raises DoesNotFit with the bytes that are missing, and with what would fit."""
    if plan.fits:
        return plan
    tight = [use for use in plan.prediction.places if use.over]
    parts = "; ".join(
        f"{use.place} needs {format_size(use.used)} and may use {format_size(use.capacity)}" for use in tight
    )
    raise DoesNotFit(
        f"{plan.model.name or 'The model'} is {format_size(plan.shortfall)} ({plan.shortfall} bytes) short: {parts}.",
        hint=_what_would_fit(plan),
    )


def read_map(text: str) -> tuple[tuple[str, str], ...]:
    """(layer, place) pairs from JSON: {layer: place}, or anything this program printed with `--json`.

    Raises BadRequest when it is neither.
    """
    try:
        data = json.loads(text)
        if isinstance(data, dict) and isinstance(data.get("placements"), list):
            pairs = [(entry["layer"], entry["rests_on"]) for entry in data["placements"]]
        elif isinstance(data, dict) and isinstance(data.get("device_map"), dict):
            pairs = list(data["device_map"].items())
        else:
            pairs = list(data.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(
            "The map is not JSON of the form {layer: place}.", hint="Take one from “plan --json”."
        ) from error
    return tuple((str(layer), _place_name(place)) for layer, place in pairs)


def default_context(model: Model) -> int:
    """Tokens to keep room for when nobody said: 4,096, or the model's longest when that is shorter."""
    return min(DEFAULT_CONTEXT, model.context_length or DEFAULT_CONTEXT)


# -- what is asked ---------------------------------------------------------------------------------------------------


def _shape_of(model: Model) -> TextShape:
    if not model.kind.generates_text or model.shape is None:
        raise WrongKindOfModel(
            f"{model.name or model.folder} is of the kind “{model.kind.value}”: it does not write text.",
            hint=model.problems[0] if model.problems else "Choose a chat or base text model.",
        )
    return model.shape


def _check_wishes(model: Model, machine: Machine, budget: Budget, wishes: Wishes) -> None:
    for place, _ in (*budget.limits, *budget.reserve):
        machine.device(place)
    if wishes.dtype is not None and wishes.dtype not in FLOAT_DTYPES:
        raise BadRequest(f"“{wishes.dtype}” is not a dtype to load in.", hint="Use bfloat16, float16 or float32.")
    if wishes.attention not in ("eager", "sdpa"):
        raise BadRequest(f"“{wishes.attention}” is no attention implementation.", hint="Use sdpa or eager.")
    if wishes.quantization is not None:
        if wishes.quantization not in memory.QUANTIZATIONS:
            raise BadRequest(f"“{wishes.quantization}” is no quantisation.", hint="Use nf4, fp4 or int8.")
        if model.quantization:
            raise BadRequest(
                f"{model.name or 'This model'} is quantised already ({model.quantization}).",
                hint="Load it as it is, or choose the original model to quantise it another way.",
            )
    if budget.context < 1:
        raise BadRequest("The context must hold at least one token.")
    longest = model.context_length
    if longest is not None and budget.context > longest:
        raise BadRequest(
            f"{model.name or 'The model'} was made for {longest} tokens, not {budget.context}.",
            hint=f"Use a context of at most {longest}.",
        )


def _place_name(place: object) -> str:
    """accelerate writes CUDA devices as bare numbers."""
    return f"cuda:{place}" if isinstance(place, int) else str(place)


def _dtype(model: Model, rooms: tuple[_Room, ...], wishes: Wishes) -> tuple[str, tuple[str, ...]]:
    """The dtype to load in: the wish, else the file's own, else the nearest that the first device really runs."""
    asked = wishes.dtype or (model.dtype if model.dtype in DTYPE_SIZES and model.dtype in FLOAT_DTYPES else "float32")
    runs = rooms[0].device.dtypes if rooms else ()
    if not runs or asked in runs:
        return asked, ()
    for other in ("float16", "float32") if asked == "bfloat16" else ("bfloat16", "float32"):
        if other in runs:
            return other, (f"{rooms[0].device.name} does not run {asked}: {other} is used.",)
    return asked, (f"No probe ran {asked} on {rooms[0].device.name}; it may fail.",)


# -- where there is room ---------------------------------------------------------------------------------------------


def _rooms(machine: Machine, budget: Budget) -> tuple[_Room, ...]:
    """Places in the order they are filled, fastest first.

    A limit of 0 takes a place away. Unified memory is one pool: while its accelerator may be used, RAM is no second
    tier beside it.
    """
    rooms: list[_Room] = []
    pooled = False
    for device in sorted(machine.devices, key=lambda d: 0 if d.is_accelerator else 1 if d.id == CPU else 2):
        limit = budget.limit(device.id)
        if limit == 0 or (device.id == CPU and pooled and limit is None):
            continue
        if device.id == DISK:
            rooms.append(_Room(device, limit, "limit" if limit is not None else "disk"))
            continue
        reserve = dict(budget.reserve).get(device.id, memory.margin(device))
        free = None if device.free is None else max(0, device.free - reserve)
        if limit is not None and (free is None or limit <= free):
            rooms.append(_Room(device, limit, "limit"))
        else:
            rooms.append(_Room(device, free, "free"))
        pooled = pooled or device.shares_memory_with == CPU
    if not rooms:
        raise DoesNotFit("Every place has a limit of 0.", hint="Give at least one place some room.")
    return tuple(rooms)


def _units(model: Model, shape: TextShape, context: int, dtype: str, quantization: str | None) -> tuple[_Unit, ...]:
    """Layers in the model's order; those that share weights are one unit at the first one's position."""
    group_of = {name: group for group in model.tied for name in group}
    units: list[_Unit] = []
    done: set[str] = set()
    for layer in model.layers:
        if layer.name in done:
            continue
        group = group_of.get(layer.name, (layer.name,))
        together = tuple(each for each in model.layers if each.name in group)
        done.update(each.name for each in together)
        kv = sum(
            memory.kv_bytes(shape, each.index, context, dtype)
            for each in together
            if each.kind is LayerKind.DECODER and each.index is not None
        )
        sizes = [
            memory.loaded_tensor_size(tensor, each, dtype, quantization) for each in together for tensor in each.tensors
        ]
        units.append(_Unit(together, sum(sizes), kv, max(sizes, default=0)))
    return tuple(units)


# -- the choice ------------------------------------------------------------------------------------------------------


def _fill(
    units: tuple[_Unit, ...], rooms: tuple[_Room, ...], working: int, quantization: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(place per unit, reason per unit): one device when one holds it all, else the fastest first."""
    for room in rooms:
        if room.device.id != DISK and _takes_all(units, room, working):
            reason = f"The whole model fits on {room.device.name}."
            return (room.device.id,) * len(units), (reason,) * len(units)
    if quantization:
        rooms = _rooms_for_quantized(rooms)
    held = 0
    while True:
        chosen, reasons = _first_fit(units, rooms, working, held)
        main = _main(chosen, rooms)
        carried = sum(unit.kv for unit, place in zip(units, chosen, strict=True) if _runs_on(place, main) != place)
        carried += max(
            (unit.tensor for unit, place in zip(units, chosen, strict=True) if _runs_on(place, main) != place),
            default=0,
        )
        if carried <= held:
            return chosen, reasons
        held = carried


def _takes_all(units: tuple[_Unit, ...], room: _Room, working: int) -> bool:
    needed = sum(unit.size + unit.kv for unit in units) + working
    return room.capacity is None or needed <= room.capacity


def _rooms_for_quantized(rooms: tuple[_Room, ...]) -> tuple[_Room, ...]:
    """bitsandbytes refuses a map that mixes accelerators with RAM or disk: the accelerators alone, else RAM alone."""
    accelerators = tuple(room for room in rooms if room.device.is_accelerator)
    ram = tuple(room for room in rooms if room.device.id == CPU)
    total = sum(room.capacity or 0 for room in accelerators)
    return ram if ram and (not accelerators or total < (ram[0].capacity or 0)) else accelerators or ram or rooms


def _first_fit(
    units: tuple[_Unit, ...], rooms: tuple[_Room, ...], working: int, held: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Each unit on the first place with room. `held` bytes of the place that runs carried layers stay free for them."""
    main = next((room.device.id for room in rooms if room.device.id != DISK), CPU)
    left: dict[str, int | None] = {}
    for room in rooms:
        keeps = 0 if room.device.id == DISK or (room.device.id == CPU and main != CPU) else working
        keeps += held if room.device.id == main else 0
        left[room.device.id] = None if room.capacity is None else room.capacity - keeps
    chosen: list[str] = []
    reasons: list[str] = []
    for unit in units:
        place, reason = _first_with_room(unit, rooms, left, main)
        chosen.append(place)
        reasons.append(reason)
    return tuple(chosen), tuple(reasons)


def _first_with_room(unit: _Unit, rooms: tuple[_Room, ...], left: dict[str, int | None], main: str) -> tuple[str, str]:
    full: list[str] = []
    for room in rooms:
        place = room.device.id
        own_kv = unit.kv if room.device.is_accelerator or place == main else 0
        needed = unit.size + own_kv
        room_left = left[place]
        if room_left is None or needed <= room_left:
            if room_left is not None:
                left[place] = room_left - needed
            return place, _reason(room, full)
        full.append(f"{place} has {format_size(max(0, room_left))} left of the {format_size(needed)} it needs")
    last = [room for room in rooms if room.device.id != DISK][-1:] or list(rooms[-1:])
    return last[0].device.id, "No place has room for it: " + "; ".join(full) + "."


def _reason(room: _Room, full: list[str]) -> str:
    if not full:
        return f"{room.device.name} is the fastest place and has room."
    carried = " It is read from the file for every pass." if room.device.id == DISK else ""
    return "; ".join(full) + f": it rests on {room.device.name}." + carried


def _by_hand(
    units: tuple[_Unit, ...], rooms: tuple[_Room, ...], places: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = [layer.name for unit in units for layer in unit.layers]
    missing = [name for name in names if name not in places]
    extra = sorted(set(places) - set(names))
    if missing or extra:
        raise MapMismatch(
            f"It leaves out {_some(missing)} and names {_some(extra)}, which this model does not have."
            if missing and extra
            else f"It leaves out {_some(missing)}."
            if missing
            else f"It names {_some(extra)}, which this model does not have.",
            hint="Plan again for this model.",
        )
    known = {room.device.id for room in rooms}
    absent = sorted(set(places.values()) - known)
    if absent:
        raise UnknownPlace(
            f"The map uses {_some(absent)}, which this machine does not have or a limit of 0 forbids.",
            hint="Plan again for this machine.",
        )
    for unit in units:
        if len({places[layer.name] for layer in unit.layers}) > 1:
            raise MapMismatch(
                f"{_some([layer.name for layer in unit.layers])} share weights and must rest together.",
                title="Tied weights can't be parted",
            )
    chosen = tuple(places[unit.layers[0].name] for unit in units)
    return chosen, ("Placed by hand.",) * len(units)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(f"“{name}”" for name in listed[:4])
    return shown + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


# -- what it means ---------------------------------------------------------------------------------------------------


def _main(chosen: tuple[str, ...], rooms: tuple[_Room, ...]) -> str:
    """The device that runs layers resting in RAM or on disk: the first accelerator in use, else the CPU."""
    for room in rooms:
        if room.device.is_accelerator and room.device.id in chosen:
            return room.device.id
    accelerator_first = next((room.device.id for room in rooms if room.device.is_accelerator), None)
    only_disk = set(chosen) == {DISK}
    return accelerator_first if only_disk and accelerator_first else CPU


def _runs_on(place: str, main: str) -> str:
    return main if place in (CPU, DISK) else place


def _placements(
    units: tuple[_Unit, ...], chosen: tuple[str, ...], reasons: tuple[str, ...], dtype: str, quantization: str | None
) -> tuple[Placement, ...]:
    found: dict[str, Placement] = {}
    main = next((place for place in chosen if place not in (CPU, DISK)), CPU)
    for unit, place, reason in zip(units, chosen, reasons, strict=True):
        for layer in unit.layers:
            quantized = quantization and any(memory.quantizable(tensor, layer) for tensor in layer.tensors)
            found[layer.name] = Placement(
                layer.name,
                place,
                _runs_on(place, main),
                reason,
                memory.loaded_size(layer, dtype, quantization),
                quantization if quantized and quantization else dtype,
            )
    return tuple(found.values())


def _predict(
    machine: Machine,
    budget: Budget,
    units: tuple[_Unit, ...],
    chosen: tuple[str, ...],
    rooms: tuple[_Room, ...],
    working: int,
) -> Prediction:
    main = next((place for place in chosen if place not in (CPU, DISK)), CPU)
    rates = speed.rates_of(machine.bandwidths)
    weights: dict[str, int] = {}
    kv: dict[str, int] = {}
    transient = 0
    seconds: list[tuple[str, float]] = []
    for unit, place in zip(units, chosen, strict=True):
        runs = _runs_on(place, main)
        weights[place] = weights.get(place, 0) + unit.size
        kv[runs] = kv.get(runs, 0) + unit.kv
        if runs != place:
            transient = max(transient, unit.tensor)
        unified = machine.has(runs) and machine.device(runs).shares_memory_with is not None
        for layer in unit.layers:
            share = unit.size // len(unit.layers)
            spent = speed.carry_seconds(share, place, runs, rates) + speed.read_seconds(share, runs, unified, rates)
            seconds.append((layer.name, spent + (speed.LAYER_OVERHEAD if layer.kind is LayerKind.DECODER else 0.0)))
    uses: list[PlaceUse] = []
    room_of = {room.device.id: room for room in rooms}
    for device in machine.devices:
        works = device.id == main or (device.id in weights and device.is_accelerator)
        room = room_of.get(device.id)
        uses.append(
            PlaceUse(
                device.id,
                weights.get(device.id, 0),
                kv.get(device.id, 0),
                (working if works else 0) + (transient if device.id == main else 0),
                dict(budget.reserve).get(device.id, memory.margin(device)),
                room.capacity if room else 0,
            )
        )
    load = sum(size / rates["disk-load"] for place, size in weights.items() if place != DISK)
    return Prediction(
        tuple(uses), sum(spent for _, spent in seconds), load, tuple(seconds), calibrated=bool(machine.bandwidths)
    )


def _what_would_fit(plan: Plan) -> str:
    """The first change that makes it fit, tried in the order of what costs least."""
    budget, wishes, model, machine = plan.budget, plan.wishes, plan.model, plan.machine
    for context in (2048, 1024, 512):
        if context < budget.context and _fits(model, machine, replace(budget, context=context), wishes):
            return f"A context of {context} tokens would fit."
    if wishes.quantization:
        without = replace(wishes, quantization=None)
        if _fits(model, machine, budget, without):
            return "Without quantisation it fits, with layers on disk: bitsandbytes can't leave layers there."
        if wishes.quantization == "int8" and _fits(model, machine, budget, replace(wishes, quantization="nf4")):
            return "In nf4 it would fit."
    elif not model.quantization and _fits(model, machine, budget, replace(wishes, quantization="nf4", map=())):
        return "In nf4 (4-bit) it would fit."
    unlimited = Budget(context=budget.context)
    if budget.limits and _fits(model, machine, unlimited, replace(wishes, map=())):
        return "Without the limits it would fit."
    return "It needs more memory than these places have."


def _fits(model: Model, machine: Machine, budget: Budget, wishes: Wishes) -> bool:
    try:
        return make_plan(model, machine, budget, wishes).fits
    except (BadRequest, DoesNotFit):
        return False
