"""A plan in plain words: one verdict, and the change that would make it faster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from layerlight.core.device import CPU, DISK, format_size
from layerlight.core.errors import BadRequest
from layerlight.core.fixes import WORTH_SAYING, Fix, fixes_of
from layerlight.core.model import LayerKind
from layerlight.core.pacing.correction import uncorrected
from layerlight.core.placing import make_plan, what_would_fit
from layerlight.core.plan import Placement, Plan, Wishes


class Verdict(StrEnum):
    FITS = "fits"
    SLOW = "slow"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Advice:
    """`words` say what the plan means, `hint` what would be better; `wishes` is that change when there is one."""

    verdict: Verdict
    words: str
    hint: str = ""
    wishes: Wishes | None = None
    plan: Plan | None = None

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """What would make it fit or faster, best first. Each look plans a dozen times anew: not for every repaint."""
        return fixes_of(self.plan) if self.plan is not None else ()


def advise(plan: Plan) -> Advice:
    """The verdict on a plan, and the quantisation that would be faster where one would. It plans a few times anew."""
    advice = verdict_of(plan)
    return _with_faster(plan, advice) if plan.fits else replace(advice, hint=what_would_fit(plan))


def verdict_of(plan: Plan) -> Advice:
    """The verdict alone: quick, as nothing is planned anew."""
    if not plan.fits:
        return Advice(Verdict.FAILED, f"It does not fit: {format_size(plan.shortfall)} are missing.", plan=plan)
    pace = format_pace(plan.prediction.seconds_per_token)
    carried = [placement for placement in plan.placements if placement.rests_on != placement.runs_on and placement.size]
    if not carried:
        return Advice(Verdict.FITS, f"{_where(plan)}: {pace}.", plan=plan)
    return Advice(Verdict.SLOW, f"{_carried(plan, carried)}: {pace}.", plan=plan)


def format_pace(seconds: float) -> str:
    """`about 40 s a token`, `about 0.06 s a token` or `about 25 tokens a second`."""
    if seconds <= 0:
        return "at once"
    if seconds >= 10:
        return f"about {seconds:.0f} s a token"
    if seconds >= 0.2:
        return f"about {seconds:.1f} s a token"
    return f"about {1 / seconds:.0f} tokens a second"


def lookup_words(plan: Plan) -> str:
    """What prompt lookup gave the last time; nothing where it was never measured with this model."""
    measured = plan.prediction.correction.tokens_a_pass
    return f"With prompt lookup a pass gave {measured:.1f} tokens last time." if measured else ""


def _where(plan: Plan) -> str:
    names = [plan.machine.device(place).name for place in plan.places]
    layers = _count(plan)
    apart = len(_of_kind(plan, (each for each in plan.placements if each.rests_on == CPU), LayerKind.EXPERTS))
    running = dict.fromkeys(each.runs_on for each in _of_kind(plan, plan.placements, LayerKind.DECODER))
    if apart and CPU not in running:
        names = [plan.machine.device(place).name for place in running]
        return f"All {layers} run on {' and '.join(names)}, the experts of {apart} of them in RAM on the CPU"
    if CPU in running and len(running) > 1:
        kept = [plan.machine.device(place).name for place in running if place != CPU]
        runs = [each.runs_on for each in _of_kind(plan, plan.placements, LayerKind.DECODER)]
        there = f"{len(runs) - runs.count(CPU)} of {layers} run on {' and '.join(kept)}"
        return f"{there}, and the CPU computes the other {runs.count(CPU)} in RAM, where they rest"
    if plan.places == (CPU,):
        return f"All {layers} rest in RAM and run on the CPU"
    if len(names) == 1:
        return f"All {layers} fit on {names[0]}"
    return f"All {layers} rest on {' and '.join(names)}: the memory of both, about the speed of one"


def _carried(plan: Plan, carried: list[Placement]) -> str:
    total = sum(1 for layer in plan.model.layers if layer.kind is LayerKind.DECODER)
    parts = []
    for place, verb in ((DISK, "read from disk"), (CPU, "carried from RAM")):
        there = [placement for placement in carried if placement.rests_on == place]
        if there:
            decoders, experts = (len(_of_kind(plan, there, kind)) for kind in (LayerKind.DECODER, LayerKind.EXPERTS))
            subject = f"{decoders} of {total} layers" if decoders else " and ".join(each.layer for each in there[:2])
            if experts and not decoders:
                subject = f"the experts of {experts} of {total} layers"
            elif experts:
                subject += f" and the experts of {experts}"
            parts.append(f"{subject} {'are' if experts or decoders != 1 else 'is'} {verb}")
    words = f"{' and '.join(parts)} for every token"
    return words[0].upper() + words[1:] if words.startswith("the ") else words


def _count(plan: Plan) -> str:
    return f"{len(_of_kind(plan, plan.placements, LayerKind.DECODER))} layers"


def _of_kind(plan: Plan, placements: Iterable[Placement], kind: LayerKind) -> list[Placement]:
    """Those of these that are layers, or experts of one."""
    names = {layer.name for layer in plan.model.layers if layer.kind is kind}
    return [each for each in placements if each.layer in names]


def _with_faster(plan: Plan, advice: Advice) -> Advice:
    """With the gentlest quantisation that is clearly faster; on a CPU bitsandbytes saves memory, not time."""
    if plan.wishes.quantization or plan.model.quantization:
        return advice
    correction, before = plan.prediction.correction.per_token, uncorrected(plan).prediction.seconds_per_token
    for quantization, name in (("int8", "8-bit"), ("nf4", "4-bit")):
        wishes = replace(plan.wishes.freed, quantization=quantization, pins=plan.wishes.pins)
        try:
            other = make_plan(plan.model, plan.machine, plan.budget, wishes)
        except BadRequest:
            continue
        gain = before / max(other.prediction.seconds_per_token, 1e-9)
        if other.fits and CPU not in other.places and gain >= WORTH_SAYING:
            pace = format_pace(correction * other.prediction.seconds_per_token)
            return replace(advice, hint=f"In {name}, {_lower(_where(other))}: {pace}.", wishes=wishes)
    return advice


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]
