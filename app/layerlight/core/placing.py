"""Planning: (Model, Machine, Budget, Wishes) → Plan, fastest place first, whole units only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from layerlight.core import memory, speed
from layerlight.core.device import CPU, DISK, Budget, Machine, format_size
from layerlight.core.errors import BadRequest, DoesNotFit, WrongKindOfModel
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, LayerKind, Model, TextShape
from layerlight.core.placement_map import place_by_hand
from layerlight.core.plan import DEFAULT_CONTEXT, PREFILL_CHUNK, Placement, PlaceUse, Plan, Prediction, Wishes
from layerlight.core.rooms import Room, candidates, reserve, rooms_of
from layerlight.core.units import Unit, units_of


def default_context(model: Model) -> int:
    """Tokens to keep room for when nobody said: 4,096, or the model's longest when that is shorter."""
    return min(DEFAULT_CONTEXT, model.context_length or DEFAULT_CONTEXT)


def make_plan(model: Model, machine: Machine, budget: Budget, wishes: Wishes | None = None) -> Plan:
    """The plan for a language model. It may not fit: ask `plan.fits`, or call `require_fit`.

    Raises WrongKindOfModel when no plan could ever run it, BadRequest for a wish that can't be met, UnknownPlace and
    MapMismatch for limits and maps of another machine or model.
    """
    wishes = wishes or Wishes()
    shape = _shape_of(model)
    _check_wishes(model, machine, budget, wishes)
    rooms = rooms_of(machine, budget)
    dtype, notes = _dtype(model, rooms, wishes)
    units = units_of(model, shape, budget.context, dtype, wishes.quantization)
    working = memory.working_bytes(shape, budget.context, dtype, wishes.attention, PREFILL_CHUNK)
    if wishes.map:
        places = place_by_hand(units, (room.device.id for room in rooms), dict(wishes.map))
        choice = _Choice(places, ("Placed by hand.",) * len(units))
        _check_quantized_map(choice, wishes)
        prediction = _predict(machine, budget, units, choice, rooms, working)
    else:
        choice, prediction = _choose(machine, budget, units, rooms, working, wishes)
    placements = _placements(units, choice, machine, dtype, wishes.quantization)
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
        hint=what_would_fit(plan),
    )


def what_would_fit(plan: Plan) -> str:
    """The change that costs least and makes it fit, in a sentence."""
    budget, wishes, model, machine = plan.budget, plan.wishes, plan.model, plan.machine
    free = replace(wishes, map=())
    if wishes.map and _fits(model, machine, budget, free):
        return "The plan made without the map fits."
    for context in (2048, 1024, 512):
        if context < budget.context and _fits(model, machine, replace(budget, context=context), wishes):
            return f"A context of {context} tokens would fit."
    if wishes.quantization == "int8" and _fits(model, machine, budget, replace(free, quantization="nf4")):
        return "In nf4 it would fit."
    if wishes.quantization and _fits(model, machine, budget, replace(free, quantization=None)):
        return "Without quantisation it fits, with layers on disk: bitsandbytes can't leave layers there."
    if not wishes.quantization and not model.quantization:
        for quantization in ("int8", "nf4"):
            if _fits(model, machine, budget, replace(free, quantization=quantization)):
                return f"In {quantization} it would fit."
    if budget.limits and _fits(model, machine, Budget(context=budget.context), free):
        return "Without the limits it would fit."
    return "It needs more memory than these places have."


def _fits(model: Model, machine: Machine, budget: Budget, wishes: Wishes) -> bool:
    try:
        return make_plan(model, machine, budget, wishes).fits
    except BadRequest:
        return False


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
    if wishes.quantization is not None and wishes.quantization not in memory.QUANTIZATIONS:
        raise BadRequest(f"“{wishes.quantization}” is no quantisation.", hint="Use nf4, fp4 or int8.")
    if wishes.quantization is not None and model.quantization:
        raise BadRequest(
            f"{model.name or 'This model'} is quantised already ({model.quantization}).",
            hint="Load it as it is, or choose the original model to quantise it another way.",
        )
    if budget.context < 1:
        raise BadRequest("The context must hold at least one token.", hint="Use for example 4096.")
    longest = model.context_length
    if longest is not None and budget.context > longest:
        raise BadRequest(
            f"{model.name or 'The model'} was made for {longest} tokens, not {budget.context}.",
            hint=f"Use a context of at most {longest}.",
        )


def _check_quantized_map(choice: _Choice, wishes: Wishes) -> None:
    kinds = {place if place in (CPU, DISK) else "accelerator" for place in choice.places}
    if wishes.quantization and (DISK in kinds or len(kinds) > 1):
        raise DoesNotFit(
            "bitsandbytes can't leave quantised layers on disk, nor part them between an accelerator and RAM.",
            hint="Put every layer on accelerators or every layer in RAM, or load without quantisation.",
        )


def _dtype(model: Model, rooms: tuple[Room, ...], wishes: Wishes) -> tuple[str, tuple[str, ...]]:
    """The dtype to load in: the wish, else the file's own, else the nearest that the first device really runs."""
    own = model.dtype if model.dtype in FLOAT_DTYPES and model.dtype in DTYPE_SIZES else "float32"
    asked = wishes.dtype or own or "float32"
    device = rooms[0].device
    if not device.dtypes or asked in device.dtypes:
        return asked, ()
    for other in ("float16", "float32") if asked == "bfloat16" else ("bfloat16", "float32"):
        if other in device.dtypes:
            return other, (f"{device.name} does not run {asked}: {other} is used.",)
    return asked, (f"No probe ran {asked} on {device.name}; it may fail.",)


# -- the choice ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Choice:
    """A place and a reason for each unit."""

    places: tuple[str, ...]
    reasons: tuple[str, ...]

    def main(self, machine: Machine) -> str:
        """What runs layers that rest in RAM or on disk: the machine's first accelerator in use, else the CPU."""
        return next((device.id for device in machine.accelerators if device.id in self.places), CPU)


def _choose(
    machine: Machine, budget: Budget, units: tuple[Unit, ...], rooms: tuple[Room, ...], working: int, wishes: Wishes
) -> tuple[_Choice, Prediction]:
    """The first set of rooms that holds everything; when none does, the one that lacks the least."""
    tried: list[tuple[_Choice, Prediction]] = []
    for each in candidates(rooms, quantized=wishes.quantization is not None):
        choice = _fill(machine, units, each, working, may_carry=wishes.quantization is None)
        prediction = _predict(machine, budget, units, choice, rooms, working)
        if not any(use.over for use in prediction.places):
            return choice, prediction
        tried.append((choice, prediction))
    if not tried:
        raise DoesNotFit("No place here can hold a quantised model.", hint="Load it without quantisation.")
    return min(tried, key=lambda pair: sum(use.over for use in pair[1].places))


def _fill(machine: Machine, units: tuple[Unit, ...], rooms: tuple[Room, ...], working: int, may_carry: bool) -> _Choice:
    """Units onto the first room that takes them. What carried layers need where they run grows with their number,
    so the filling is repeated until the room kept for them is enough."""
    usable = rooms if may_carry else tuple(room for room in rooms if room.device.id != DISK)
    held = 0
    while True:
        choice = _first_fit(units, usable, working, held)
        main = choice.main(machine)
        carried = [unit for unit, place in zip(units, choice.places, strict=True) if _runs_on(place, main) != place]
        needed = sum(unit.kv for unit in carried) + max((unit.tensor for unit in carried), default=0)
        if needed <= held:
            return choice
        held = needed


def _first_fit(units: tuple[Unit, ...], rooms: tuple[Room, ...], working: int, held: int) -> _Choice:
    """Each unit on the first place with room; `held` bytes stay free where carried layers run."""
    main = rooms[0].device.id if rooms[0].device.id != DISK else CPU
    left: dict[str, int | None] = {}
    for room in rooms:
        place = room.device.id
        keeps = (working if place == main or room.device.is_accelerator else 0) + (held if place == main else 0)
        left[place] = None if room.capacity is None else room.capacity - (0 if place == DISK else keeps)
    chosen = [_first_with_room(unit, rooms, left, main) for unit in units]
    return _Choice(tuple(place for place, _ in chosen), tuple(reason for _, reason in chosen))


def _first_with_room(unit: Unit, rooms: tuple[Room, ...], left: dict[str, int | None], main: str) -> tuple[str, str]:
    full: list[str] = []
    for room in rooms:
        place = room.device.id
        needed = unit.size + (unit.kv if room.device.is_accelerator or place == main else 0)
        room_left = left[place]
        if room_left is None or needed <= room_left:
            if room_left is not None:
                left[place] = room_left - needed
            return place, _reason(room, full)
        full.append(f"{place} has {format_size(max(0, room_left))} left of the {format_size(needed)} it needs")
    return rooms[-1].device.id, "No place has room for it: " + "; ".join(full) + "."


def _reason(room: Room, full: list[str]) -> str:
    if not full:
        return f"{room.device.name} is the fastest place and has room."
    carried = ", and is read from the file for every pass" if room.device.id == DISK else ""
    return f"{'; '.join(full)}. It rests on {room.device.name}{carried}."


# -- what it means ---------------------------------------------------------------------------------------------------


def _runs_on(place: str, main: str) -> str:
    return main if place in (CPU, DISK) else place


def _placements(
    units: tuple[Unit, ...], choice: _Choice, machine: Machine, dtype: str, quantization: str | None
) -> tuple[Placement, ...]:
    main = choice.main(machine)
    return tuple(
        Placement(
            layer.name,
            place,
            _runs_on(place, main),
            reason,
            size,
            quantization
            if quantization and any(memory.quantizable(tensor, layer) for tensor in layer.tensors)
            else dtype,
        )
        for unit, place, reason in zip(units, choice.places, choice.reasons, strict=True)
        for layer, size in zip(unit.layers, unit.sizes, strict=True)
    )


def _predict(
    machine: Machine, budget: Budget, units: tuple[Unit, ...], choice: _Choice, rooms: tuple[Room, ...], working: int
) -> Prediction:
    main = choice.main(machine)
    rates = speed.rates_of(machine.bandwidths)
    weights: dict[str, int] = {}
    kv: dict[str, int] = {}
    carried = 0
    seconds: list[tuple[str, float]] = []
    for unit, place in zip(units, choice.places, strict=True):
        runs = _runs_on(place, main)
        weights[place] = weights.get(place, 0) + unit.size
        kv[runs] = kv.get(runs, 0) + unit.kv
        carried = max(carried, unit.tensor if runs != place else 0)
        seconds += _unit_seconds(unit, place, runs, machine, rates)
    capacity = {room.device.id: room.capacity for room in rooms}
    uses = tuple(
        PlaceUse(
            device.id,
            weights.get(device.id, 0),
            kv.get(device.id, 0),
            (working if device.id == main or (device.is_accelerator and device.id in weights) else 0)
            + (carried if device.id == main else 0),
            reserve(device, budget),
            capacity.get(device.id, 0),
        )
        for device in machine.devices
    )
    load = sum(size / rates["disk-load"] for place, size in weights.items() if place != DISK)
    return Prediction(uses, sum(spent for _, spent in seconds), load, tuple(seconds), bool(machine.bandwidths))


def _unit_seconds(
    unit: Unit, place: str, runs: str, machine: Machine, rates: Mapping[str, float]
) -> list[tuple[str, float]]:
    unified = machine.has(runs) and machine.device(runs).shares_memory_with is not None
    spent: list[tuple[str, float]] = []
    for layer, size, read in zip(unit.layers, unit.sizes, unit.bytes_read(), strict=True):
        seconds = speed.carry_seconds(max(size, read), place, runs, rates)
        seconds += speed.read_seconds(read, runs, unified, rates)
        spent.append((layer.name, seconds + (speed.LAYER_OVERHEAD if layer.kind is LayerKind.DECODER else 0.0)))
    return spent
