"""A second opinion on plans: bytes and seconds counted again, with none of the planner's code.

Only the tables of shapes (KV cache and working memory per shape, which have tests of their own) are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from layerlight.core import memory
from layerlight.core.device import Machine
from layerlight.core.model import DTYPE_SIZES, Layer, LayerKind, Model
from layerlight.core.plan import Plan
from layerlight.core.sizing.attention import attention_for
from layerlight.core.sizing.working_memory import work_of

TYPICAL_ACCELERATOR, TYPICAL_UNIFIED, TYPICAL_CPU = 250e9, 100e9, 8e9
TYPICAL_DISK, TYPICAL_RING, TYPICAL_BUS, TYPICAL_HAND_OVER = 0.5e9, 1.4e9, 8e9, 50e-6
RING_OF_LONG_READ, HOOKS_OF_LONG_READ = 0.93, 0.28
BUFFERS, ON_DEVICE = 3, 2
TYPICAL_PRODUCTS, TYPICAL_CPU_PRODUCTS = 10e12, 18e9
TYPICAL_QUANTIZED = {"nf4": 0.4e9, "fp4": 0.4e9, "int8": 0.7e9}
OVERHEAD = 0.0009


@dataclass(frozen=True)
class Checked:
    """Bytes on each place at the peak, and seconds of the workload's prompt, of a token and of both together."""

    used: dict[str, int]
    prompt: float
    token: float
    total: float


def check(plan: Plan, places: Mapping[str, str] | None = None) -> Checked:
    """What a placement of the plan's model takes: the plan's own, or another map of layers to places, run in the way
    that fits and is fastest."""
    if places is None:
        own = {each.layer: each.runs_on for each in plan.placements}
        return _checked(plan, plan.device_map(), own)
    capacity = {use.place: use.capacity for use in plan.prediction.places}

    def worth(found: Checked) -> tuple[int, float]:
        over = [size - most for place, size in found.used.items() if (most := capacity[place]) is not None]
        return sum(max(0, each) for each in over), found.total

    return min((_checked(plan, places, runs) for runs in ways_to_run(plan, places)), key=worth)


def _checked(plan: Plan, places: Mapping[str, str], runs: Mapping[str, str]) -> Checked:
    main = main_of(plan.machine, places.values())
    return Checked(_bytes(plan, places, runs, main), *_seconds(plan, places, runs))


def ways_to_run(plan: Plan, places: Mapping[str, str]) -> list[dict[str, str]]:
    """Where each layer could run: what rests in RAM or on disk on the main device, or such experts or all of it in RAM.

    No way where a layer would run on another device than its experts. RAM is no place beside its own accelerator.
    """
    main = main_of(plan.machine, places.values())
    carried = {name: main if place in ("cpu", "disk") else place for name, place in places.items()}
    kinds = {layer.name: layer.kind for layer in plan.model.layers}
    unified = any(plan.machine.device(place).shares_memory_with for place in places.values())
    staying = {
        name: "cpu" if kinds[name] is LayerKind.EXPERTS and places[name] in ("cpu", "disk") else run
        for name, run in carried.items()
    }
    in_place = {name: "cpu" if place in ("cpu", "disk") else place for name, place in places.items()}
    ways = [carried]
    if plan.model.quantization and not memory.expands(plan.model.quantization, plan.machine.devices):
        staying = in_place = carried  # a CPU has no kernel for packed weights
    if main != "cpu" and not unified and plan.budget.limit("cpu") != 0:
        ways += [each for each in (staying, in_place) if each not in ways]
    nested = nested_in(plan.model)
    return [runs for runs in ways if all(runs[inner] in (runs[outer], "cpu") for inner, outer in nested)]


def main_of(machine: Machine, places: object) -> str:
    used = set(places)  # type: ignore[call-overload]
    return next(
        (device.id for device in machine.devices if device.kind not in ("cpu", "disk") and device.id in used), "cpu"
    )


def groups_of(model: Model) -> list[list[Layer]]:
    """Layers that share weights, in the model's order."""
    found: list[list[Layer]] = []
    for layer in model.layers:
        shared = next((group for group in model.tied if layer.name in group), None)
        for group in found:
            if shared and group[0].name in shared:
                group.append(layer)
                break
        else:
            found.append([layer])
    return found


@dataclass(frozen=True)
class Sums:
    """Of one layer once loaded: bytes and elements outside experts and in them, and its largest module outside them."""

    dense: int
    dense_elements: int
    experts: int
    expert_elements: int
    largest: int
    quantized: bool


_sums: dict[tuple[int, str, str | None, Machine], tuple[Layer, Sums]] = {}


def sums_of(plan: Plan, layer: Layer) -> Sums:
    """Counted tensor by tensor, once: the layer is kept, so that its identity stays its own."""
    key = (id(layer), plan.dtype, plan.wishes.quantization, plan.machine)
    if key not in _sums:
        experts = plan.model.shape.experts if plan.model.shape else None
        counted = [0, 0, 0, 0]
        modules: dict[str, int] = {}
        quantized = False
        expands = memory.expands(plan.model.quantization, plan.machine.devices)
        for tensor in layer.tensors:
            kind = plan.model.shape.model_type if plan.model.shape else ""
            size = memory.loaded_tensor_size(tensor, layer, plan.dtype, plan.wishes.quantization, expands, kind)
            elements = prod(tensor.shape)
            if experts and (".experts." in tensor.name or (len(tensor.shape) == 3 and tensor.shape[0] == experts)):
                counted[2] += size
                counted[3] += elements
            else:
                counted[0] += size
                counted[1] += elements
                module = tensor.name.rpartition(".")[0]
                modules[module] = modules.get(module, 0) + size
            quantized = quantized or (bool(plan.wishes.quantization) and memory.quantizable(tensor, layer))
        at_once = [sum(modules[outer] for outer in modules if f"{inner}.".startswith(f"{outer}.")) for inner in modules]
        _sums[key] = (layer, Sums(*counted, max(at_once, default=0), quantized))
    return _sums[key][1]


def nested_in(model: Model) -> list[tuple[str, str]]:
    """(layer, layer it lies in): hidden states are added up in the outer one, so both must run on one device."""
    decoders = [layer.name for layer in model.layers if layer.kind is LayerKind.DECODER]
    return [(layer.name, name) for layer in model.layers for name in decoders if layer.name.startswith(f"{name}.")]


def weight_bytes(plan: Plan, layer: Layer) -> int:
    sums = sums_of(plan, layer)
    return sums.dense + sums.experts


def cache_bytes(plan: Plan, layer: Layer) -> int:
    if layer.kind is not LayerKind.DECODER or layer.index is None or plan.model.shape is None:
        return 0
    batch = plan.wishes.workload.batch
    return batch * memory.kv_bytes(plan.model.shape, layer.index, plan.budget.context, plan.dtype)


def _buffers(plan: Plan, group: list[Layer]) -> int:
    """Of an accelerator that runs these layers while they rest elsewhere."""
    return 0 if group[0].kind is LayerKind.TOWER else ON_DEVICE * _whole(plan, group)


def _bytes(plan: Plan, places: Mapping[str, str], runs: Mapping[str, str], main: str) -> dict[str, int]:
    used = dict.fromkeys((device.id for device in plan.machine.devices), 0)
    passing = 0
    for layer in plan.model.layers:
        used[places[layer.name]] += weight_bytes(plan, layer)
        used[runs[layer.name]] += cache_bytes(plan, layer)
    for group in groups_of(plan.model):
        if runs[group[0].name] == main != places[group[0].name] and main != "cpu":
            passing = max(passing, _buffers(plan, group))
    for place in {main, *(place for place in places.values() if place not in ("cpu", "disk"))}:
        used[place] += _working(plan, place, passing if place == main else 0)
    if main != "cpu" and "cpu" in runs.values():
        whole = any(runs[layer.name] == "cpu" and layer.kind is not LayerKind.EXPERTS for layer in plan.model.layers)
        used["cpu"] += _working(plan, "cpu", 0) if whole else _working_of_experts(plan)
    used["cpu"] += BUFFERS * max(
        (_whole(plan, group) for group in groups_of(plan.model) if _is_ahead(group[0], places, runs)), default=0
    )
    return used


def _is_ahead(layer: Layer, places: Mapping[str, str], runs: Mapping[str, str]) -> bool:
    """Whether it is read into the CPU's ring before each pass."""
    on_disk = places[layer.name] == "disk" and runs[layer.name] == "cpu"
    return on_disk and layer.kind not in (LayerKind.EXPERTS, LayerKind.TOWER)


def _whole(plan: Plan, group: list[Layer]) -> int:
    return sum(weight_bytes(plan, layer) for layer in group)


def _working_of_experts(plan: Plan) -> int:
    assert plan.model.shape is not None
    batch = plan.wishes.workload.batch
    return memory.experts_bytes(plan.model.shape, plan.budget.context, plan.dtype, plan.prefill_chunk, batch)


def _working(plan: Plan, place: str, passing: int) -> int:
    """What a pass needs in its most demanding stage, beside the buffers of weights that are passing."""
    assert plan.model.shape is not None
    work = work_of(
        plan.model.shape,
        plan.budget.context,
        plan.dtype,
        attention_for(plan.model.shape.model_type, plan.wishes.attention),
        plan.prefill_chunk,
        plan.wishes.workload.batch,
        plan.machine.device(place).kind,
    )
    return work.most + passing


class _Rates:
    def __init__(self, plan: Plan) -> None:
        self.known = dict(plan.machine.bandwidths)
        self.machine, self.model, self.dtype = plan.machine, plan.model, plan.dtype

    def memory(self, place: str, quantization: str | None) -> float:
        if f"weights:{place}:{self.dtype}" in self.known and not quantization:
            return self.known[f"weights:{place}:{self.dtype}"]
        if quantization:
            slow = self.known.get(f"weights:{place}:{quantization}")
            if slow is None and place == "cpu":
                slow = TYPICAL_QUANTIZED[quantization]
            if slow is not None:
                return slow
        if place in self.known:
            return self.known[place]
        if place == "cpu":
            return TYPICAL_CPU
        return TYPICAL_UNIFIED if self.machine.device(place).shares_memory_with else TYPICAL_ACCELERATOR

    def products(self, place: str) -> float:
        usual = TYPICAL_CPU_PRODUCTS if place == "cpu" else TYPICAL_PRODUCTS
        return self.known.get(f"matrix:{place}:{self.dtype}", usual)

    def bus(self, place: str, way: str) -> float:
        """Of what is no weight."""
        other = "from" if way == "to" else "to"
        return self._bus(place, (f"{way}-pageable", f"{other}-pageable"))

    def weights(self, place: str) -> float:
        """Of weights that are carried to a device: from page-locked RAM."""
        return self._bus(place, ("to-pinned", "to-pageable", "from-pinned", "from-pageable"))

    def _bus(self, place: str, names: Sequence[str]) -> float:
        for name in names:
            if f"bus:{place}:{name}" in self.known:
                return self.known[f"bus:{place}:{name}"]
        return self.known.get("bus", TYPICAL_BUS)

    def disk(self, ahead: bool) -> float:
        """Of layers read ahead, or of tensor after tensor: as measured, or by its share of a long read's."""
        name, share, usual = "disk", HOOKS_OF_LONG_READ, TYPICAL_DISK
        if ahead:
            name, share, usual = "disk-ring", RING_OF_LONG_READ, TYPICAL_RING
        long_read = self.known.get("disk-load")
        return self.known.get(name, share * long_read if long_read else usual)

    def overhead(self, place: str) -> float:
        return self.known.get(f"overhead:{place}", OVERHEAD)


def _seconds(plan: Plan, places: Mapping[str, str], runs: Mapping[str, str]) -> tuple[float, float, float]:
    assert plan.model.shape is not None
    prompt, answer = _prompt_and_answer(plan)
    chunks = [plan.prefill_chunk] * (prompt // plan.prefill_chunk)
    chunks += [prompt % plan.prefill_chunk] if prompt % plan.prefill_chunk else []
    length = min(1.0, (prompt + answer / 2) / plan.budget.context)
    rates = _Rates(plan)
    first = together(*(_pass(plan, places, runs, rates, chunk, 0.0) for chunk in chunks))
    token = together(_pass(plan, places, runs, rates, 1, length))
    return first, token, first + (answer - 1) * token


Parts = tuple[float, float, float]
"""Seconds of carrying, of working, and of reading ahead meanwhile."""


def together(*parts: Parts) -> float:
    """Seconds of all of it: what is read ahead costs only what it takes longer than all work."""
    carrying, working, reading = (sum(each) for each in zip(*parts, strict=True)) if parts else (0.0, 0.0, 0.0)
    return carrying + max(working, reading)


def _pass(
    plan: Plan, places: Mapping[str, str], runs: Mapping[str, str], rates: _Rates, tokens: int, length: float
) -> Parts:
    """One pass of so many tokens; `length` is the share of the KV cache that is full, 0 while it grows."""
    batch = plan.wishes.workload.batch
    decode = length > 0
    carrying = working = reading = 0.0
    for group in groups_of(plan.model):
        for layer in group:
            own = _layer(plan, layer, group, places, runs, rates, tokens * batch, batch, decode, length)
            carrying, working, reading = carrying + own[0], working + own[1], reading + own[2]
    stations = [runs[layer.name] for layer in plan.model.layers if _is_station(layer)]
    crossings = [*pairwise(stations)]
    for inner, outer in nested_in(plan.model):
        crossings += [(runs[outer], runs[inner]), (runs[inner], runs[outer])]
    assert plan.model.shape is not None
    moved = tokens * batch * plan.model.shape.hidden_size * DTYPE_SIZES[plan.dtype]
    for before, after in crossings:
        if before != after:
            working += rates.known.get("handover", TYPICAL_HAND_OVER)
            working += moved / rates.bus(before, "from") if before != "cpu" else 0.0
            working += moved / rates.bus(after, "to") if after != "cpu" else 0.0
    return carrying, working, reading


def _is_station(layer: Layer) -> bool:
    """Whether hidden states pass it on their way from layer to layer."""
    beside = layer.kind in (LayerKind.TOWER, LayerKind.EXPERTS)
    return not beside and not (layer.kind is LayerKind.OTHER and layer.size == 0)


def _layer(
    plan: Plan,
    layer: Layer,
    group: list[Layer],
    places: Mapping[str, str],
    runs: Mapping[str, str],
    rates: _Rates,
    tokens: int,
    batch: int,
    decode: bool,
    length: float,
) -> Parts:
    shape, wishes = plan.model.shape, plan.wishes
    assert shape is not None
    if layer.kind is LayerKind.TOWER:
        return 0.0, 0.0, 0.0
    place, run = places[layer.name], runs[layer.name]
    held = group if layer.kind is LayerKind.HEAD and len(group) > 1 else [layer]
    if layer.kind is LayerKind.HEAD:
        tokens = batch
    one = share = 1.0
    if shape.experts and shape.experts_per_token:
        one = min(1.0, shape.experts_per_token / shape.experts)
        share = 1 - (1 - one) ** tokens
    brought = float(sum(weight_bytes(plan, each) for each in held))
    if run == "cpu":  # which reads a file's pages where it needs them
        brought -= sum(sums_of(plan, each).experts for each in held) * (1 - share)
    seconds = reading = 0.0
    if _is_ahead(layer, places, runs):
        reading = brought / rates.disk(ahead=True)
    elif place != run:
        seconds = brought / rates.disk(ahead=run != "cpu") if place == "disk" else 0.0
        seconds = max(seconds, brought / rates.weights(run)) if run != "cpu" else seconds
    if layer.kind is LayerKind.EMBEDDING:
        return seconds, 0.0, reading
    read = operations = 0.0
    for each in held:
        sums = sums_of(plan, each)
        read += sums.dense + sums.experts * share
        operations += 2.0 * (sums.dense_elements + sums.expert_elements * one)
    busy = read / rates.memory(run, wishes.quantization if sums_of(plan, layer).quantized else None)
    if tokens > 1:
        busy = max(busy, operations * tokens / rates.products(run))
    if decode and layer.kind is LayerKind.DECODER:
        busy += 3 * length * sum(cache_bytes(plan, each) for each in group) / rates.memory(run, None)
    if layer.kind is LayerKind.DECODER:
        own = rates.overhead(run)
        busy += rates.known.get("overhead:disk", 0.0) if _is_ahead(layer, places, runs) else 0.0
        busy = max(busy, own) if place == run and run != "cpu" else busy + own
    if run != "cpu":  # a layer comes while the one before computes
        seconds = max(0.0, seconds - busy)
    return seconds, busy, reading


class Table:
    """Prices of every placement of a plan's model: each layer's bytes and seconds counted once per place and device."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.groups = groups_of(plan.model)
        self.rates = _Rates(plan)
        self.capacity = {use.place: use.capacity for use in plan.prediction.places}
        self.weights = [sum(weight_bytes(plan, layer) for layer in group) for group in self.groups]
        self.caches = [sum(cache_bytes(plan, layer) for layer in group) for group in self.groups]
        self.brought = [_buffers(plan, group) for group in self.groups]
        self.working = {
            (device.id, size): _working(plan, device.id, size)
            for device in plan.machine.devices
            for size in {0, *self.brought}
        }
        self.known: dict[tuple[int, str, str], tuple[Parts, Parts]] = {}
        self.rings = [
            0 if group[0].kind in (LayerKind.EXPERTS, LayerKind.TOWER) else BUFFERS * weights
            for group, weights in zip(self.groups, self.weights, strict=True)
        ]
        self.experts = [group[0].kind is LayerKind.EXPERTS for group in self.groups]
        self.answer = _prompt_and_answer(plan)[1]
        number = {layer.name: at for at, group in enumerate(self.groups) for layer in group}
        self.stations = [number[layer.name] for layer in plan.model.layers if _is_station(layer)]
        self.crossings: dict[tuple[str, str], float] = {}
        self.nested = [(number[inner], number[outer]) for inner, outer in nested_in(plan.model)]
        self.beside = _working_of_experts(plan)

    def total(self, chosen: Sequence[str]) -> float:
        """Seconds of the workload with each group at this place; infinite when that does not fit."""
        places = {layer.name: place for group, place in zip(self.groups, chosen, strict=True) for layer in group}
        main = main_of(self.plan.machine, chosen)
        return min(
            (
                self._total(chosen, main, [way[group[0].name] for group in self.groups])
                for way in ways_to_run(self.plan, places)
            ),
            default=float("inf"),
        )

    def _total(self, chosen: Sequence[str], main: str, runs: Sequence[str]) -> float:
        used = dict.fromkeys(self.capacity, 0)
        passing = ring = 0
        for at, (place, run) in enumerate(zip(chosen, runs, strict=True)):
            used[place] += self.weights[at]
            used[run] += self.caches[at]
            if place == "disk" and run == "cpu":
                ring = max(ring, self.rings[at])
            elif run == main != place:
                passing = max(passing, self.brought[at])
        used["cpu"] += ring
        for place in {main, *runs} - ({"cpu"} if main != "cpu" else set()):
            used[place] += self.working[place, passing if place == main else 0]
        if main != "cpu" and "cpu" in runs:
            whole = any(run == "cpu" and not apart for run, apart in zip(runs, self.experts, strict=True))
            used["cpu"] += self.working["cpu", 0] if whole else self.beside
        for place, size in used.items():
            most = self.capacity[place]
            if most is not None and size > most:
                return float("inf")
        parts = [self._group(at, place, run) for at, (place, run) in enumerate(zip(chosen, runs, strict=True))]
        crossed = [(runs[before], runs[after]) for before, after in pairwise(self.stations)]
        for inner, outer in self.nested:
            crossed += [(runs[outer], runs[inner]), (runs[inner], runs[outer])]
        parts += [self._crossing(before, after) for before, after in crossed if before != after]
        return together(*(first for first, _ in parts)) + (self.answer - 1) * together(*(token for _, token in parts))

    def _group(self, at: int, place: str, run: str) -> tuple[Parts, Parts]:
        if (at, place, run) not in self.known:
            self.known[at, place, run] = self._whole(
                lambda tokens, decode, length: added(
                    _layer(
                        self.plan,
                        layer,
                        self.groups[at],
                        {layer.name: place},
                        {layer.name: run},
                        self.rates,
                        tokens,
                        self.plan.wishes.workload.batch,
                        decode,
                        length,
                    )
                    for layer in self.groups[at]
                )
            )
        return self.known[at, place, run]

    def _crossing(self, before: str, after: str) -> tuple[Parts, Parts]:
        shape, dtype = self.plan.model.shape, self.plan.dtype
        assert shape is not None
        if (before, after) not in self.crossings:
            out = 1 / self.rates.bus(before, "from") if before != "cpu" else 0.0
            into = 1 / self.rates.bus(after, "to") if after != "cpu" else 0.0
            hidden = shape.hidden_size * DTYPE_SIZES[dtype]
            self.crossings[before, after] = self._whole(
                lambda tokens, decode, length: (0.0, TYPICAL_HAND_OVER + tokens * hidden * (out + into), 0.0)
            )
        return self.crossings[before, after]

    def _whole(self, parts: Callable[[int, bool, float], Parts]) -> tuple[Parts, Parts]:
        """Of the prompt and of a token."""
        work, context, chunk = self.plan.wishes.workload, self.plan.budget.context, self.plan.prefill_chunk
        prompt, answer = _prompt_and_answer(self.plan)
        chunks = [chunk] * (prompt // chunk) + ([prompt % chunk] if prompt % chunk else [])
        first = added(parts(tokens * work.batch, False, 0.0) for tokens in chunks)
        return first, parts(work.batch, True, min(1.0, (prompt + answer / 2) / context))


def added(parts: Iterable[Parts]) -> Parts:
    carrying = working = reading = 0.0
    for each in parts:
        carrying, working, reading = carrying + each[0], working + each[1], reading + each[2]
    return carrying, working, reading


def _prompt_and_answer(plan: Plan) -> tuple[int, int]:
    """Tokens of the workload, within the context."""
    work, context = plan.wishes.workload, plan.budget.context
    if work.prompt + work.answer <= context:
        return work.prompt, work.answer
    prompt = max(1, context * work.prompt // (work.prompt + work.answer))
    return prompt, max(1, context - prompt)
