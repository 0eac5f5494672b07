"""Planning: (Model, Machine, Budget, Wishes) → Plan, the fastest that fits, whole units only."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from layerlight.core import memory, speed
from layerlight.core.device import CPU, DISK, Budget, Device, Machine, format_size
from layerlight.core.errors import BadRequest, DoesNotFit, MapMismatch, WrongKindOfModel
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, LayerKind, Model, TextShape
from layerlight.core.plan import (
    DEFAULT_CONTEXT,
    PREFILL_CHUNK,
    Carried,
    HandOver,
    Placement,
    PlaceUse,
    Plan,
    Prediction,
    Wishes,
)
from layerlight.core.planning.bundles import Part, Ways, bundles_of, runs_together
from layerlight.core.planning.choosing import Choice, Choosing
from layerlight.core.planning.device_sets import DeviceSet, Stays, device_sets, may_stay
from layerlight.core.planning.kv_choice import KV_CACHES, saved_words, why_not
from layerlight.core.planning.pins import pinned_units
from layerlight.core.planning.placement_map import place_by_hand
from layerlight.core.planning.rooms import Room, reserve, rooms_of
from layerlight.core.planning.shortfall import nearest_fit
from layerlight.core.planning.units import Unit, units_of
from layerlight.core.sizing.attention import attention_for
from layerlight.core.sizing.kv_cache import FP8
from layerlight.core.sizing.stored_format import stored_format
from layerlight.core.sizing.told_bytes import told_weights, told_work
from layerlight.core.sizing.work import Work
from layerlight.core.sizing.working_memory import work_of
from layerlight.core.speed import Prices, Seconds, total_of

STRATEGIES = ("fastest", "most-on-gpu")
"""What the plan itself can follow; accelerate's own need accelerate, and so the engine."""

ENGINE_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")


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
    task = _Task(model, shape, machine, budget, wishes, rooms, dtype)
    choice = task.by_hand() if wishes.map else task.choose()
    prediction = task.predict(choice)
    placements = task.placements(choice, prediction)
    if wishes.kv:
        usual = _Task(model, shape, machine, budget, replace(wishes, kv=""), rooms, dtype).predict(choice)
        notes = (*notes, saved_words(wishes.kv, usual.places, prediction.places))
    return Plan(model, machine, budget, wishes, dtype, placements, prediction, checked=task.is_checked, notes=notes)


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
    free = wishes.freed
    if (wishes.map or wishes.pins) and _fits(model, machine, budget, free):
        return f"The plan made without the {'map' if wishes.map else 'pins'} fits."
    for context in (2048, 1024, 512):
        if context < budget.context and _fits(model, machine, replace(budget, context=context), wishes):
            return f"A context of {context} tokens would fit."
    if not wishes.kv and _fits(model, machine, budget, replace(wishes, kv=FP8)):
        return f"With the KV cache in {FP8} it would fit."
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
    if wishes.kv and wishes.kv not in KV_CACHES:
        raise BadRequest(f"“{wishes.kv}” is no KV cache.", hint=f"Use {' or '.join(KV_CACHES)}, or leave it out.")
    if wishes.kv and model.shape is not None and (words := why_not(model.shape, machine)):
        raise BadRequest(f"The KV cache can't be kept in {wishes.kv}. {words}", hint="Leave it as it is.")
    if wishes.strategy in ENGINE_STRATEGIES and not wishes.map:
        raise BadRequest(
            f"The strategy “{wishes.strategy}” is accelerate's own: it needs the engine.",
            hint="Use fastest or most-on-gpu here.",
        )
    if wishes.strategy not in (*STRATEGIES, *ENGINE_STRATEGIES):
        raise BadRequest(f"“{wishes.strategy}” is no strategy.", hint=f"Use {' or '.join(STRATEGIES)}.")
    if min(wishes.workload.prompt, wishes.workload.answer, wishes.workload.batch) < 1:
        raise BadRequest("Prompt, answer and batch must be at least 1.", hint="Leave them out for the usual ones.")
    if budget.context < 1:
        raise BadRequest("The context must hold at least one token.", hint="Use for example 4096.")
    longest = model.context_length
    if longest is not None and budget.context > longest:
        raise BadRequest(
            f"{model.name or 'The model'} was made for {longest} tokens, not {budget.context}.",
            hint=f"Use a context of at most {longest}.",
        )


def _check_quantized(places: Sequence[str], quantization: str | None) -> None:
    kinds = {place if place in (CPU, DISK) else "accelerator" for place in places}
    if quantization and (DISK in kinds or len(kinds) > 1):
        raise DoesNotFit(
            "bitsandbytes can't leave quantised layers on disk, nor part them between an accelerator and RAM.",
            hint="Put every layer on accelerators or every layer in RAM, or load without quantisation.",
        )


def _rate_of(quantization: str | None) -> str | None:
    """The name that its rates go by: quantised scales cost next to no time."""
    return quantization and quantization.removesuffix("-double")


def loading_dtype(model: Model) -> str:
    """The dtype a model is loaded in by itself: its files', or where those are packed, what its config names."""
    if model.dtype in FLOAT_DTYPES:
        return model.dtype
    return model.config_dtype or ("bfloat16" if model.quantization else "float32")


def _dtype(model: Model, rooms: tuple[Room, ...], wishes: Wishes) -> tuple[str, tuple[str, ...]]:
    """The dtype to load in: the wish, else the file's own, else the nearest that the first device really runs."""
    own = loading_dtype(model)
    if stored_format(model) is not None and wishes.dtype not in (None, own):
        return own, (f"Its weights were quantised in {own} and can't be loaded in {wishes.dtype}: {own} is used.",)
    asked = wishes.dtype or own
    device = rooms[0].device
    if not device.dtypes or asked in device.dtypes:
        return asked, ()
    for other in ("float16", "float32") if asked == "bfloat16" else ("bfloat16", "float32"):
        if other in device.dtypes:
            return other, (f"{device.name} does not run {asked}: {other} is used.",)
    return asked, (f"No probe ran {asked} on {device.name}; it may fail.",)


# -- the choice ------------------------------------------------------------------------------------------------------


class _Task:
    """One request, with all that its choice and its prediction both need."""

    def __init__(
        self,
        model: Model,
        shape: TextShape,
        machine: Machine,
        budget: Budget,
        wishes: Wishes,
        rooms: tuple[Room, ...],
        dtype: str,
    ) -> None:
        self.model, self.shape, self.machine, self.budget, self.wishes = model, shape, machine, budget, wishes
        self.rooms, self.dtype = rooms, dtype
        self.quantization = wishes.quantization or stored_format(model)
        self.workload = wishes.workload.within(budget.context)
        batch = self.workload.batch
        expands = memory.expands(model.quantization, machine.devices)
        units = units_of(
            model,
            shape,
            budget.context,
            dtype,
            wishes.quantization,
            expands,
            wishes.kv,
        )
        self.units = units if batch == 1 else tuple(replace(unit, kv=batch * unit.kv) for unit in units)
        self.work = {device.id: self._work(device) for device in machine.devices}
        self.beside = batch * memory.experts_bytes(shape, budget.context, dtype, PREFILL_CHUNK) if shape.experts else 0
        width = DTYPE_SIZES[dtype]
        self.prices = Prices(machine, shape, dtype, width, self.workload, budget.context, PREFILL_CHUNK, kv=wishes.kv)
        self._known_seconds: dict[tuple[int, str, str], Seconds] = {}
        self.pins = pinned_units(self.units, wishes.pins, (room.device.id for room in rooms))
        self.steps = _steps(model, self.units)
        self.bundles = bundles_of(self.units, shape, _rate_of(self.quantization), self.pins)
        self.parts = tuple(part for bundle in self.bundles for part in bundle.parts)
        apart = any(len(bundle.parts) > 1 for bundle in self.bundles)
        self.stays: tuple[Stays, ...] = (Stays.EXPERTS, Stays.ALL) if apart else (Stays.ALL,)
        if model.quantization and not expands:  # packed weights wait for a kernel that a CPU does not have
            self.stays = ()

    def _work(self, device: Device) -> Work:
        """What a pass needs on a device that runs layers: by the empty model where it was asked, else by formula."""
        dtype, context = self.dtype, self.budget.context
        attention = attention_for(self.shape.model_type, self.wishes.attention)
        batch, told, kv = self.workload.batch, self._told_work(), self.wishes.kv
        work = work_of(self.shape, context, dtype, attention, PREFILL_CHUNK, batch, device.kind, told, kv)
        largest = max((unit.largest_quantized for unit in self.units), default=0)
        work = work.beside(memory.dequantized_bytes(largest, dtype, self.quantization, device.is_accelerator))
        return work.at_least(self._loading(device, largest))

    def _loading(self, device: Device, largest: int) -> int:
        """What the load needs there while no cache and no work do; in RAM, which then holds all of it, the cache gives
        way."""
        needed = memory.loading_bytes(largest, self.dtype, self.wishes.quantization, device.is_accelerator)
        return needed - (sum(unit.kv for unit in self.units) if device.id == CPU else 0)

    @property
    def is_checked(self) -> bool:
        """Whether the empty model told weights, cache and work of this very plan; packed weights lie in the files."""
        weights = self.model.quantization or told_weights(self.model.told, self.dtype, self.wishes.quantization)
        return bool(weights) and self._told_work() is not None

    def _told_work(self) -> Work | None:
        attention = attention_for(self.shape.model_type, self.wishes.attention)
        return told_work(self.model.told, self.dtype, attention, self.budget.context, PREFILL_CHUNK)

    def by_hand(self) -> Choice:
        """The map that was given. Raises MapMismatch, UnknownPlace, and DoesNotFit where bitsandbytes can't."""
        places = place_by_hand(self.units, (room.device.id for room in self.rooms), dict(self.wishes.map))
        _check_quantized(places, self.quantization)
        return self._best_of([Choice(places, devices) for devices in self._devices_of(places)])

    def choose(self) -> Choice:
        """The best choice that fits; when none does, the one that lacks the least."""
        pinned = frozenset(self.pins.values())
        _check_quantized(tuple(pinned), self.quantization)
        alike = {room.device.id: self._worth(room, pinned) for room in self.rooms}
        sets = tuple(device_sets(self.rooms, self.quantization is not None, pinned, alike, self.stays))
        if not sets:
            raise self._nowhere(pinned)
        bundle_of = {unit: number for number, bundle in enumerate(self.bundles) for unit in bundle.numbers}
        choosing = Choosing(
            self.bundles,
            tuple(bundle_of[unit] for unit in self.steps),
            self.work,
            self.beside,
            Ways(self.prices, [room.device.id for room in self.rooms], self._cost),
            lambda source, target: self._wanted(0, self.prices.of(self.prices.hand_over(source, target))),
            self._real_cost,
        )
        found = choosing.best(sets)
        if found is not None:
            return found
        plain = (each for each in sets if each.stays is Stays.NOTHING)
        return min((self._nearest(each, choosing.is_complete) for each in plain), key=self._lack)

    def _nowhere(self, pinned: frozenset[str]) -> DoesNotFit:
        """Why no devices are left to choose from."""
        pooled = [room.device for room in self.rooms if room.device.id in pinned and room.device.shares_memory_with]
        if pooled and CPU in pinned:
            return DoesNotFit(
                f"{pooled[0].name} has RAM for its memory: layers, or experts apart from theirs, can't rest in both.",
                hint=f"Pin them all to {pooled[0].id} or all to {CPU}; what has no room there can rest on disk.",
            )
        return DoesNotFit("No place that may be used can run the model.", hint="Give RAM or an accelerator some room.")

    def _nearest(self, devices: DeviceSet, nothing_fits: bool) -> Choice:
        """What lacks little on these devices; one that stays empty is none of those in use."""
        places = list(nearest_fit(self.units, devices, self.work, self.pins))
        for bundle in self.bundles:
            for number in bundle.numbers[1:]:
                places[number] = self.pins.get(number, places[bundle.first])
        gap = 0.0 if nothing_fits else 1.0
        return self._best_of([Choice(tuple(places), devices, gap) for devices in self._devices_of(places)])

    def _best_of(self, choices: Sequence[Choice]) -> Choice:
        """Of choices with the same places the one that fits and is fastest. Raises MapMismatch where all would run a
        layer on one device and its experts on another."""
        parted = [self._parted(choice) for choice in choices]
        whole = [choice for choice, words in zip(choices, parted, strict=True) if not words]
        if not whole:
            raise MapMismatch(
                parted[0],
                title="A layer can't be parted between devices",
                hint="Let both rest on one accelerator, or the experts in RAM or on disk.",
            )
        return whole[0] if len(whole) == 1 else min(whole, key=self._lack)

    def _parted(self, choice: Choice) -> str:
        """Where a layer would run apart from its experts, in words; empty where none would."""
        for bundle in self.bundles:
            runs = [self.runs_on(choice, number) for number in bundle.numbers]
            if not runs_together(runs):
                name = bundle.parts[0].unit.layers[0].name
                return f"“{name}” and its experts would run on {' and '.join(sorted(set(runs)))}."
        return ""

    def runs_on(self, choice: Choice, number: int) -> str:
        """Where a unit runs."""
        return choice.devices.runs_on(choice.places[number], self.units[number].layers[0].kind)

    def _lack(self, choice: Choice) -> tuple[int, float]:
        """Bytes without a place, then seconds."""
        prediction = self.predict(choice)
        return sum(use.over for use in prediction.places), prediction.workload_seconds

    def _cost(self, unit: Unit, place: str, seconds: float) -> float:
        return self._wanted(unit.size if place in (CPU, DISK) else 0, seconds)

    def _real_cost(self, places: tuple[str, ...], devices: DeviceSet) -> float:
        """What all units and hand-overs cost together on these places, reading ahead while others work."""
        choice = Choice(places, devices)
        runs = [self.runs_on(choice, number) for number in range(len(places))]
        every = [self.seconds_of(*where) for where in zip(self.parts, places, runs, strict=True)]
        crossings = self._hand_overs(choice) if devices.shares_work else ()
        total = total_of([*every, *(self.prices.hand_over(each.source, each.target) for each in crossings)])
        away = sum(unit.size for unit, place in zip(self.units, places, strict=True) if place in (CPU, DISK))
        return self._wanted(away, self.prices.of(total))

    def seconds_of(self, part: Part, place: str, runs_on: str) -> Seconds:
        """Of a unit that rests on this place and runs there."""
        known = self._known_seconds.get((part.kind, place, runs_on))
        if known is None:
            each = (self.prices.layer(traffic, place, runs_on) for traffic in part.traffic)
            known = self._known_seconds[part.kind, place, runs_on] = sum(each, Seconds())
        return known

    def _wanted(self, away: int, seconds: float) -> float:
        """What the strategy wants little of: seconds, or bytes away from accelerators and then seconds."""
        return away + 1e-6 * seconds if self.wishes.strategy == "most-on-gpu" else seconds

    def _worth(self, room: Room, pinned: frozenset[str]) -> Hashable:
        place = room.device.id
        if place in pinned:
            return place
        rates = tuple(
            (f":{name}:".replace(f":{place}:", ":"), rate)
            for name, rate in sorted(self.machine.bandwidths)
            if f":{place}:" in f":{name}:"
        )
        return room.capacity, room.device.kind, room.device.shares_memory_with, rates

    def _devices_of(self, places: Sequence[str]) -> list[DeviceSet]:
        """The devices in use; more than once where layers may be carried from RAM or run there."""
        accelerators = tuple(room for room in self.rooms if room.device.is_accelerator and room.device.id in places)
        others = tuple(room for room in self.rooms if not room.device.is_accelerator)
        away = any(place in (CPU, DISK) for place in places) and may_stay(accelerators, others)
        return [DeviceSet(accelerators, others, each) for each in (Stays.NOTHING, *(self.stays if away else ()))]

    # -- what it means -------------------------------------------------------------------------------------------------

    def placements(self, choice: Choice, prediction: Prediction) -> tuple[Placement, ...]:
        reasons = _Reasons(self, choice, prediction)
        return tuple(
            Placement(
                layer.name,
                place,
                self.runs_on(choice, number),
                reasons.of(number, place),
                weights.size,
                (self.quantization or self.dtype) if weights.quantized else self.dtype,
            )
            for number, (unit, place) in enumerate(zip(self.units, choice.places, strict=True))
            for layer, weights in zip(unit.layers, unit.weights, strict=True)
        )

    def predict(self, choice: Choice) -> Prediction:
        """Bytes per place at the peak, and seconds, of a choice."""
        every = self._seconds_each(choice)
        total = sum(every, Seconds())
        names = (layer.name for unit in self.units for layer in unit.layers)
        layers = tuple((name, self._own(each, total)) for name, each in zip(names, every, strict=True))
        carried = self._carried(choice, every, total)
        hand_overs = self._hand_overs(choice)
        for each in hand_overs:
            total += self.prices.hand_over(each.source, each.target)
        return Prediction(
            self._uses(choice),
            total.decode(),
            self._load_seconds(choice),
            layers,
            bool(self.machine.bandwidths),
            total.prefill(),
            self.prices.of(total),
            choice.gap if self.wishes.strategy == "fastest" else 0.0,
            hand_overs,
            carried,
        )

    def _uses(self, choice: Choice) -> tuple[PlaceUse, ...]:
        devices = choice.devices
        weights: dict[str, int] = {}
        kv: dict[str, int] = {}
        carried = ring = 0
        in_ram: set[LayerKind] = set()
        for number, (unit, place) in enumerate(zip(self.units, choice.places, strict=True)):
            runs = self.runs_on(choice, number)
            weights[place] = weights.get(place, 0) + unit.size
            kv[runs] = kv.get(runs, 0) + unit.kv
            if runs == CPU:
                in_ram.add(unit.layers[0].kind)
                ring = max(ring, unit.passing(place, CPU))
            elif runs == devices.main:
                carried = max(carried, unit.passing(place, runs))
        capacity = {room.device.id: room.capacity for room in self.rooms}
        return tuple(
            PlaceUse(
                device.id,
                weights.get(device.id, 0),
                kv.get(device.id, 0),
                (self.work[device.id].most if device.is_accelerator and device.id in weights else 0)
                + (carried if device.id == devices.main else 0)
                + (self._work_in_ram(in_ram, devices) + ring if device.id == CPU else 0),
                reserve(device, self.budget),
                capacity.get(device.id, 0),
            )
            for device in self.machine.devices
        )

    def _work_in_ram(self, kinds: set[LayerKind], devices: DeviceSet) -> int:
        """What the CPU needs to run these kinds of layers; of experts alone, which get their tokens from an
        accelerator, less."""
        if devices.accelerators and kinds == {LayerKind.EXPERTS}:
            return self.beside
        return self.work[CPU].most if kinds or not devices.accelerators else 0

    def _seconds_each(self, choice: Choice) -> list[Seconds]:
        """Of every layer of every unit."""
        known: dict[tuple[int, str], tuple[Seconds, ...]] = {}
        every: list[Seconds] = []
        for number, (part, place) in enumerate(zip(self.parts, choice.places, strict=True)):
            seconds = known.get((part.kind, place))
            if seconds is None:
                runs = self.runs_on(choice, number)
                seconds = tuple(self.prices.layer(traffic, place, runs) for traffic in part.traffic)
                known[part.kind, place] = seconds
            every += seconds
        return every

    def _carried(self, choice: Choice, every: list[Seconds], total: Seconds) -> tuple[Carried, ...]:
        """Of layers that rest elsewhere than they run; where work hides a read, only the rest of it waits."""
        layers = (
            (layer.name, traffic, place, self.runs_on(choice, number))
            for number, (part, place) in enumerate(zip(self.parts, choice.places, strict=True))
            for layer, traffic in zip(part.unit.layers, part.traffic, strict=True)
        )
        batch = self.prices.workload.batch
        return tuple(
            Carried(
                name,
                round(self.prices.brought_bytes(traffic, batch, runs)),
                max(0.0, self._own(each, total) - each.decode_working),
            )
            for (name, traffic, place, runs), each in zip(layers, every, strict=True)
            if place != runs
        )

    def _own(self, each: Seconds, total: Seconds) -> float:
        """A layer's part of a decode pass: of what all wait for reads, as much as it is of what is read."""
        alone = replace(each, decode_reading=0.0).decode()
        share = each.decode_reading / total.decode_reading if total.decode_reading else 0.0
        return alone + share * total.waiting()

    def _hand_overs(self, choice: Choice) -> tuple[HandOver, ...]:
        moved = self.prices.crossing_bytes()
        names = {number: unit.layers[0].name for number, unit in enumerate(self.units)}
        seen: set[int] = set()
        found = []
        before = ""
        for number in self.steps:
            again = number in seen
            seen.add(number)
            place = self.runs_on(choice, number)
            if before and before != place:
                name = self.units[number].layers[-1].name if again else names[number]
                found.append(HandOver(name, before, place, moved))
                if self.units[number].layers[0].kind is LayerKind.EXPERTS:  # what they make goes back to their layer
                    found.append(HandOver(name, place, before, moved))
                    continue
            before = place
        return tuple(found)

    def _load_seconds(self, choice: Choice) -> float:
        stored: dict[str, int] = {}
        for unit, place in zip(self.units, choice.places, strict=True):
            stored[place] = stored.get(place, 0) + sum(layer.size for layer in unit.layers)
        return sum(speed.load_seconds(size, place, self.prices.rates) for place, size in stored.items())


def _steps(model: Model, units: Sequence[Unit]) -> tuple[int, ...]:
    """Numbers of units in the order hidden states pass them; what they do not pass (towers, buffers) is left out."""
    unit_of = {layer.name: number for number, unit in enumerate(units) for layer in unit.layers}
    passed = [
        layer.name
        for layer in model.layers
        if layer.kind is not LayerKind.TOWER and (layer.kind is not LayerKind.OTHER or layer.size)
    ]
    return tuple(unit_of[name] for name in passed)


class _Reasons:
    """Why each unit rests where it does, in a sentence."""

    def __init__(self, task: _Task, choice: Choice, prediction: Prediction) -> None:
        self._task, self._choice = task, choice
        self._uses = {use.place: use for use in prediction.places}
        self._known: dict[tuple[str, int, str, bool, LayerKind], str] = {}

    def of(self, number: int, place: str) -> str:
        runs = self._task.runs_on(self._choice, number)
        unit = self._task.units[number]
        key = (place, unit.size, runs, number in self._task.pins, unit.layers[0].kind)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._sentence(number, place)
        return known

    def _sentence(self, number: int, place: str) -> str:
        task, devices = self._task, self._choice.devices
        name = task.machine.device(place).name
        if task.wishes.map:
            by_hand = task.wishes.strategy not in ENGINE_STRATEGIES
            return "Placed by hand." if by_hand else f"Placed by accelerate's “{task.wishes.strategy}”."
        if number in task.pins:
            return f"Pinned to {name} by hand."
        if self._uses[place].over:
            return f"No place has room for everything: {name} lacks {format_size(self._uses[place].over)}."
        if place != DISK and place == devices.main and len(set(self._choice.places)) == 1:
            return f"{name} is the fastest place that has room for everything."
        if place not in (CPU, DISK):
            return f"{name} holds it and runs it."
        return self._away(number, place, name)

    def _away(self, number: int, place: str, name: str) -> str:
        devices = self._choice.devices
        if not devices.accelerators:
            how = _by_cpu(place, self._task.units[number]) if place == DISK else " and the CPU runs it"
            return f"{name} holds it{how}."
        runs = self._task.runs_on(self._choice, number)
        main = devices.accelerators[0].device.id
        use, unit = self._uses[main], self._task.units[number]
        left = None if use.capacity is None else max(0, use.capacity - use.used)
        full = (
            f"{main} has {format_size(left)} left of the {format_size(unit.size)} it needs"
            if left is not None and left < unit.size
            else f"What {main} has left is worth more to other layers"
        )
        if runs == CPU and unit.layers[0].kind is LayerKind.EXPERTS:
            return f"{full}. It rests on {name}{_by_cpu(place, unit)}."
        if runs == CPU:
            return f"{full}. {self._in_place(number, place, name, main)}"
        carried = " and is read from the file for every pass" if place == DISK else ""
        return f"{full}. It rests on {name}{carried}."

    def _in_place(self, number: int, place: str, name: str, main: str) -> str:
        """That the CPU computes it, with what both ways would take."""
        task, part = self._task, self._task.parts[number]
        here, there = (task.seconds_of(part, place, device) for device in (CPU, main))
        read = " from disk" if place == DISK else ""
        how = _by_cpu(place, task.units[number])
        words = (
            f"It rests on {name}{how}{':' if place != DISK else ', which takes'} {_milliseconds(here.decode())} a token"
        )
        return f"{words}, where carrying it{read} to {main} would take {_milliseconds(there.decode())}."


def _by_cpu(place: str, unit: Unit) -> str:
    """How the CPU computes a unit in RAM or on disk: of experts and of a table only what is chosen is read."""
    kind = unit.layers[0].kind
    if place != DISK:
        experts = kind is LayerKind.EXPERTS
        return f", and the CPU computes {'with the experts that are chosen, where they lie' if experts else 'it there'}"
    if kind is LayerKind.EXPERTS:
        return ": the experts that are chosen are read from the file for every token, and the CPU computes with them"
    if kind is LayerKind.EMBEDDING and len(unit.layers) == 1:
        return ": the rows that are looked up are read from the file for every token"
    often = "each time it runs" if kind is LayerKind.TOWER else "for every token"
    return f": it is read from the file {often}, and the CPU computes it"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"
