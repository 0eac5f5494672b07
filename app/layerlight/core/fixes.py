"""Fixes: what would make a plan fit or faster, each with its price, best first, and nothing that can't run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from layerlight.core.device import CPU, DISK, Budget, Device, Machine, format_size
from layerlight.core.errors import LayerlightError
from layerlight.core.memory import MIB
from layerlight.core.model import DTYPE_SIZES, LayerKind, Model
from layerlight.core.pacing.correction import uncorrected
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.kv_choice import why_not
from layerlight.core.sizing.kv_cache import FP8

if TYPE_CHECKING:
    from layerlight.core.machines.machine_figures import MachineFile

WORTH_SAYING = 1.5
"""A change is offered when it makes a token at least this many times faster: below, the estimates can't tell."""

SHORTEST_CONTEXT = 256
"""Tokens below which a context is no help."""

SAME_TOKENS = 95
"""Of 100 most likely next tokens, those that an fp8 cache left as they were: 240 greedy tokens of five answers of
SmolLM2-135M-Instruct in float32, measured; the answers' perplexity rose by 2 %."""

_QUANTIZED = {"int8": "8 bit", "nf4": "4 bit"}
EXPERTS_TO_RAM = ("*.experts", CPU)
"""The pin that keeps the experts of every layer in RAM."""

_METAL_SHARE = 0.85
"""The part of a Mac's memory that may be lent to Metal while the system still has room to work."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A change, what it costs and what it gains. With `wishes` and `budget` it can be applied at once."""

    words: str
    price: str
    seconds_per_token: float
    """What a token would take here, corrected as the plan is; on another machine as predicted."""
    gain: float
    """How many times faster a token would be; infinite when the plan does not fit as it is."""
    wishes: Wishes | None = None
    budget: Budget | None = None
    machine: MachineFile | None = None
    """The machine that it wants: nothing changes on this one, but it can be planned for."""
    model: str = ""
    """The public model that it takes, by name: nobody has its weights yet, but it can be planned."""


def fixes_of(plan: Plan, goes_on: Callable[[], bool] = lambda: True) -> tuple[Fix, ...]:
    """Every fix that makes the plan fit, or a token clearly faster; the greatest gain first.

    A person's own limit is lifted, for however little, before another machine is named; that is named only when nothing
    else helps a plan that does not fit or reads from disk. `goes_on` is asked between offers; once it says no the
    answer is empty. Where earlier runs corrected the plan, the changes are compared with what it was before: nothing
    else was corrected, and a slow run is no gain of theirs.
    """
    correction = plan.prediction.correction.per_token
    plan = uncorrected(plan)
    found: list[Fix] = []
    for offers in _OFFERS:
        if not goes_on():
            return ()
        found += offers(plan)
    if not found and (not plan.fits or DISK in plan.places):
        found = [*_raised_limit(plan, worth=1.0)] or [*_another_machine(plan)]
    return tuple(
        _corrected(fix, correction) for fix in sorted(found, key=lambda fix: (-fix.gain, fix.seconds_per_token))
    )


def _corrected(fix: Fix, by: float) -> Fix:
    """The fix with its seconds as earlier runs correct them; those of this machine say nothing of another."""
    return fix if fix.machine else replace(fix, seconds_per_token=fix.seconds_per_token * by)


def is_carried(plan: Plan) -> bool:
    """Whether weights are brought from elsewhere for every token."""
    return any(each.rests_on != each.runs_on and each.size for each in plan.placements)


def spills(plan: Plan) -> bool:
    """Whether accelerators have no room for all that they would run: it is carried, or the CPU computes it in RAM."""
    kinds = {layer.name: layer.kind for layer in plan.model.layers}
    running = {each.runs_on for each in plan.placements if kinds[each.layer] is LayerKind.DECODER}
    return is_carried(plan) or (CPU in running and len(running) > 1)


def _fix(
    plan: Plan,
    words: str,
    price: str,
    machine: Machine | None = None,
    budget: Budget | None = None,
    wishes: Wishes | None = None,
    model: Model | None = None,
    worth: float = WORTH_SAYING,
) -> Iterator[Fix]:
    """The fix, when a plan with these changes fits and is clearly faster, or fits where this one does not."""
    changed = model is None and machine is None
    other = try_plan(model or plan.model, machine or plan.machine, budget or plan.budget, wishes or plan.wishes)
    if other is None or not other.fits:
        return
    seconds = other.prediction.seconds_per_token
    gain = plan.prediction.seconds_per_token / max(seconds, 1e-9) if plan.fits else float("inf")
    if gain >= worth and gain > 1:
        yield Fix(words, price, seconds, gain, other.wishes if changed else None, other.budget if changed else None)


def try_plan(model: Model, machine: Machine, budget: Budget, wishes: Wishes) -> Plan | None:
    """The plan, or None where these wishes can't be met there."""
    try:
        return make_plan(model, machine, budget, wishes)
    except LayerlightError:
        return None


# -- what can be applied -----------------------------------------------------------------------------------------------


def _quantize(plan: Plan) -> Iterator[Fix]:
    if plan.wishes.quantization or plan.model.quantization:
        return
    for quantization, name in _QUANTIZED.items():
        wishes = replace(plan.wishes.freed, quantization=quantization)
        yield from _fix(
            plan,
            f"Load it in {name}.",
            "Answers lose a little exactness, more in 4 bit than in 8; loading takes longer.",
            wishes=wishes,
        )


def _quantize_cache(plan: Plan) -> Iterator[Fix]:
    """Half the bytes of the KV cache or less. Where turning it back costs what that gains, it is not worth saying."""
    if plan.wishes.kv or plan.model.shape is None or why_not(plan.model.shape, plan.machine):
        return
    if any(device.kind == "mps" and device.caches is None for device in plan.machine.devices):
        return  # no torch so far has float8 there: only a probe may say otherwise
    yield from _fix(
        plan,
        f"Keep the KV cache in 8 bit ({FP8}).",
        f"Answers may change: on the starter model {SAME_TOKENS} of 100 tokens stayed as they were.",
        wishes=replace(plan.wishes, kv=FP8),
    )


def _other_dtype(plan: Plan) -> Iterator[Fix]:
    device = plan.machine.device(next((each.runs_on for each in plan.placements), CPU))
    for dtype in ("bfloat16", "float16"):
        known = not device.dtypes or dtype in device.dtypes
        if DTYPE_SIZES[dtype] < DTYPE_SIZES[plan.dtype] and known and not plan.model.quantization:
            yield from _fix(
                plan,
                f"Load it in {dtype} instead of {plan.dtype}.",
                "Half the bytes; numbers are rounded to fewer digits.",
                wishes=replace(plan.wishes, dtype=dtype),
            )
            return


def _shorter_context(plan: Plan) -> Iterator[Fix]:
    """The longest context that fits, or that is clearly faster with nothing carried."""
    enough = plan.prediction.seconds_per_token / WORTH_SAYING

    def helps(context: int) -> bool:
        other = try_plan(plan.model, plan.machine, replace(plan.budget, context=context), plan.wishes)
        if other is None or not other.fits:
            return False
        return not plan.fits or (not spills(other) and other.prediction.seconds_per_token <= enough)

    context = longest(SHORTEST_CONTEXT, plan.budget.context - 1, helps)
    if context is not None:
        yield from _fix(
            plan,
            f"Shorten the context to {context} tokens.",
            f"Prompt and answer together may have {context} tokens instead of {plan.budget.context}.",
            budget=replace(plan.budget, context=context),
        )


def longest(least: int, most: int, helps: Callable[[int], bool]) -> int | None:
    """The largest whole number from `least` to `most` that helps, where smaller ones always do; None when none does."""
    if most < least or not helps(least):
        return None
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if helps(middle) else (least, middle - 1)
    return least


def _without_pins(plan: Plan) -> Iterator[Fix]:
    if plan.wishes.map or plan.wishes.pins or plan.wishes.strategy != "fastest":
        yield from _fix(
            plan,
            "Let the plan choose every place.",
            "Layers placed by hand may move.",
            wishes=replace(plan.wishes, map=(), pins=(), strategy="fastest"),
        )


def _experts_to_ram(plan: Plan) -> Iterator[Fix]:
    """Where layers were placed by hand: attention stays there, experts go where they are only read as far as chosen."""
    experts = {layer.name for layer in plan.model.layers if layer.kind is LayerKind.EXPERTS}
    wishes = plan.wishes
    if not experts or not plan.machine.has(CPU) or not (wishes.map or wishes.pins or wishes.strategy != "fastest"):
        return
    by_hand = tuple((name, CPU if name in experts else place) for name, place in wishes.map)
    pins = tuple(pin for pin in wishes.pins if pin != EXPERTS_TO_RAM)
    yield from _fix(
        plan,
        "Move the experts to RAM, and leave the rest of their layers where it is.",
        "The CPU computes with the experts that each token chooses; long prompts take longer.",
        wishes=replace(wishes, map=by_hand, pins=() if by_hand else (*pins, EXPERTS_TO_RAM), strategy="fastest"),
    )


def _raised_limit(plan: Plan, worth: float = WORTH_SAYING) -> Iterator[Fix]:
    for place, limit in plan.budget.limits:
        others = tuple(each for each in plan.budget.limits if each[0] != place)
        name = plan.machine.device(place).name
        yield from _fix(
            plan,
            f"Lift the limit of {format_size(limit)} on {name}.",
            f"The plan may use all that is free on {name}.",
            budget=replace(plan.budget, limits=others),
            worth=worth,
        )


# -- what only a person can do -----------------------------------------------------------------------------------------


def _freed_device(plan: Plan) -> Iterator[Fix]:
    for device in plan.machine.devices:
        if device.id == DISK or device.total is None or device.free is None or device.kind == "mps":
            continue
        held = device.total - device.free
        if held > device.total // 10:
            yield from _fix(
                plan,
                f"Free memory on {device.name}: other programs hold {format_size(held)}.",
                "Programs must be closed.",
                machine=_with(plan.machine, device, device.total - device.total // 20),
            )


def _metal_limit(plan: Plan) -> Iterator[Fix]:
    for device in plan.machine.devices:
        if device.kind != "mps" or device.total is None or device.free is None:
            continue
        lent = int(device.total * _METAL_SHARE)
        if lent > device.free:
            yield from _fix(
                plan,
                f"Lend Metal more of the memory: sudo sysctl iogpu.wired_limit_mb={lent // MIB}.",
                "Other programs have less, until the Mac is started again.",
                machine=_with(plan.machine, device, lent),
            )


def _with(machine: Machine, device: Device, free: int) -> Machine:
    mended = replace(device, free=free)
    return replace(machine, devices=tuple(mended if each is device else each for each in machine.devices))


def _sibling(plan: Plan) -> Iterator[Fix]:
    """The largest smaller public model of the same type that needs nothing carried."""
    from layerlight.core.machines.public_models import (  # parses data: only where it is asked for
        public_model,
        public_models,
    )

    if plan.model.shape is None or (plan.fits and not spills(plan)):
        return
    kind = plan.model.shape.model_type
    smaller = [each for each in public_models() if each.config.get("model_type") == kind]
    for public in sorted(smaller, key=lambda each: -each.parameters):
        if public.parameters * 10 > plan.model.parameters * 9:
            continue
        model = public_model(public.name)
        budget = replace(plan.budget, context=min(plan.budget.context, model.context_length or plan.budget.context))
        other = try_plan(model, plan.machine, budget, Wishes(workload=plan.wishes.workload))
        if other is not None and other.fits and not spills(other):
            found = _fix(
                plan,
                f"Take a smaller model of its family, for example {public.repository}.",
                "It knows less, and has to be downloaded.",
                budget=budget,
                wishes=other.wishes,
                model=model,
            )
            yield from (replace(fix, model=public.name) for fix in found)
            return


def _another_machine(plan: Plan) -> Iterator[Fix]:
    """The smallest bundled machine that holds all of it where it runs."""
    for _, title, file in sorted(_bundled(), key=lambda each: each[:2]):
        wishes = plan.wishes.freed
        other = try_plan(plan.model, file.machine, Budget(context=plan.budget.context), wishes)
        if other is not None and other.fits and not spills(other):
            seconds = other.prediction.seconds_per_token
            gain = plan.prediction.seconds_per_token / max(seconds, 1e-9) if plan.fits else float("inf")
            if gain >= WORTH_SAYING:
                words = f"This wants another machine: {title} holds all of it."
                yield Fix(words, "Another machine.", seconds, gain, machine=file)
                return


def _bundled() -> Iterable[tuple[int, str, MachineFile]]:
    """(bytes it has for models, title, itself) of each machine that comes with the program."""
    from layerlight.core.machines.machine_files import machine_names, read_machine_file  # as above

    for name in machine_names():
        found = read_machine_file(name)
        rooms = [device for device in found.machine.devices if device.id != DISK and not device.shares_memory_with]
        yield sum(device.total or 0 for device in rooms), found.title, found


_OFFERS: tuple[Callable[[Plan], Iterator[Fix]], ...] = (
    _without_pins,
    _experts_to_ram,
    _quantize,
    _quantize_cache,
    _other_dtype,
    _shorter_context,
    _raised_limit,
    _freed_device,
    _metal_limit,
    _sibling,
)
