"""Correction: what earlier runs took, and what that says of the seconds of a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from layerlight.core.messages import ModelLoaded, PlaceMemory, RunResult
from layerlight.core.model import Model
from layerlight.core.pacing.calibration import identity_of
from layerlight.core.plan import Correction, Plan, Prediction

FEW_TOKENS = 8
"""Shorter answers and prompts say too little of a pace."""
RECENT = 9
"""So many of the latest runs are asked how far predictions were off."""
LEAST, MOST = 0.25, 4.0
"""How far runs of other models may move a prediction."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a load, of a decode pass and of a token of the prompt; None where it was not seen."""

    load: float | None = None
    per_token: float | None = None
    per_prompt_token: float | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes at the peak on one place."""

    place: str
    predicted: int | None
    measured: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """One real run beside what was predicted for it, before any correction."""

    machine: str
    model: str
    plan: str
    kind: str
    """Kinds of places that its layers rest and run on: how alike runs of different models are."""
    predicted: Pace
    measured: Pace
    peaks: tuple[Peak, ...] = ()
    prompt_tokens: int = 0
    answer_tokens: int = 0
    when: float = 0.0
    """Seconds since 1970."""
    tokens_a_pass: float | None = None
    """What a pass gave with prompt lookup; None without it."""


def model_identity(model: Model) -> str:
    """A name for these very files: their folder, names, sizes and times. Files that are not there have none."""
    folder = Path(model.folder)
    files = []
    for name in sorted(model.files):
        with suppress(OSError, ValueError):
            facts = (folder / name).stat()
            files.append((name, facts.st_size, facts.st_mtime_ns))
    return _digest([model.folder, model.architecture, model.size, len(model.layers), files])


def plan_identity(plan: Plan) -> str:
    """A name for a placement with all that its speed depends on."""
    placements = [(each.layer, each.rests_on, each.runs_on, each.dtype) for each in plan.placements]
    wishes = plan.wishes
    facts = [placements, plan.dtype, wishes.quantization, wishes.attention, plan.budget.context, plan.prefill_chunk]
    return _digest([*facts, wishes.kv] if wishes.kv else facts)


def kind_of(plan: Plan) -> str:
    """`cpu>cpu disk>cpu`, with the quantisation if there is one, and with what the KV cache is kept in."""
    kinds = {device.id: device.kind for device in plan.machine.devices}
    ways = {
        f"{kinds.get(each.rests_on, each.rests_on)}>{kinds.get(each.runs_on, each.runs_on)}" for each in plan.placements
    }
    chosen = (plan.wishes.quantization, plan.wishes.kv and f"kv-{plan.wishes.kv}")
    return " ".join([*sorted(ways), *(each for each in chosen if each)])


def run_of(plan: Plan, loaded: ModelLoaded | None, result: RunResult, when: float) -> Run:
    """What a run was, to be remembered. `loaded` is None for a second answer of a model that stayed in memory.

    Prompt tokens that were in the cache already took no time; a run whose memory ran out took more than its own, and
    with prompt lookup a token is not a pass.
    """
    before = uncorrected(plan).prediction
    prompt = plan.wishes.workload.within(plan.budget.context).prompt
    computed = result.prompt_tokens - result.reused
    plain = result.drafts is None and not result.recomputed
    pace = result.tokens_per_second if len(result.tokens) > FEW_TOKENS and plain else None
    first = result.time_to_first_token if computed > FEW_TOKENS and not result.recomputed else None
    return Run(
        identity_of(plan.machine),
        model_identity(plan.model),
        plan_identity(plan),
        kind_of(plan),
        Pace(before.load_seconds, before.seconds_per_token, before.prefill_seconds / prompt),
        Pace(
            loaded.seconds if loaded else None,
            1 / pace if pace else None,
            first / computed if first else None,
        ),
        _peaks(before, result.memory or (loaded.memory if loaded else ())),
        result.prompt_tokens,
        len(result.tokens),
        when,
        result.drafts.tokens_a_pass if result.drafts and result.drafts.passes >= FEW_TOKENS else None,
    )


def corrected(plan: Plan, runs: Sequence[Run], identity: str = "") -> Plan:
    """The plan with its seconds corrected by earlier runs, the newest first among `runs`. `identity` is the model's,
    where it is known already: finding it looks at every file.

    The same model in the same placement takes what it took last time; another one what it was predicted times the
    median of how far predictions were off on this machine between places of the same kinds. What a pass gives with
    prompt lookup hangs on model and text, not on places.
    """
    plan = uncorrected(plan)
    here = identity_of(plan.machine)
    runs = [run for run in runs if run.machine == here]
    if not runs:
        return plan
    model, placement = identity or model_identity(plan.model), plan_identity(plan)
    a_pass = next((run.tokens_a_pass for run in runs if run.model == model and run.tokens_a_pass), None)
    runs = [run for run in runs if run.kind == kind_of(plan)]
    if not runs and a_pass is None:
        return plan
    same = [run for run in runs if (run.model, run.plan) == (model, placement)]
    prediction = plan.prediction
    prompt = plan.wishes.workload.within(plan.budget.context).prompt
    correction = Correction(
        _factor(same, runs, _per_token, prediction.seconds_per_token),
        _factor(same, runs, _per_prompt_token, prediction.prefill_seconds / prompt),
        _factor(same, runs, _load, prediction.load_seconds),
        next((run.measured.per_token for run in same if run.measured.per_token), None),
        len(runs),
        a_pass,
    )
    return replace(plan, prediction=_scaled(prediction, correction))


def uncorrected(plan: Plan) -> Plan:
    """The plan with the seconds it was made with."""
    was = plan.prediction.correction
    undone = Correction(1 / was.per_token, 1 / was.prefill, 1 / was.load)
    return plan if was == Correction() else replace(plan, prediction=_scaled(plan.prediction, undone, Correction()))


def _scaled(prediction: Prediction, by: Correction, told: Correction | None = None) -> Prediction:
    decode = prediction.workload_seconds - prediction.prefill_seconds
    prefill = prediction.prefill_seconds * by.prefill
    return replace(
        prediction,
        seconds_per_token=prediction.seconds_per_token * by.per_token,
        seconds_per_layer=tuple((name, seconds * by.per_token) for name, seconds in prediction.seconds_per_layer),
        carried=tuple(replace(each, waits=each.waits * by.per_token) for each in prediction.carried),
        load_seconds=prediction.load_seconds * by.load,
        prefill_seconds=prefill,
        workload_seconds=prefill + decode * by.per_token,
        correction=told or by,
    )


def _factor(same: Sequence[Run], alike: Sequence[Run], read: Callable[[Pace], float | None], predicted: float) -> float:
    last = next((seconds for run in same if (seconds := read(run.measured))), None)
    if last is not None and predicted > 0:
        return last / predicted
    ratios = [
        seconds / expected
        for run in alike
        if (seconds := read(run.measured)) and (expected := read(run.predicted)) and expected > 0
    ]
    return min(MOST, max(LEAST, median(ratios[:RECENT]))) if ratios else 1.0


def _per_token(pace: Pace) -> float | None:
    return pace.per_token


def _per_prompt_token(pace: Pace) -> float | None:
    return pace.per_prompt_token


def _load(pace: Pace) -> float | None:
    return pace.load


def _peaks(prediction: Prediction, memory: Sequence[PlaceMemory]) -> tuple[Peak, ...]:
    measured = {each.place: each.rise for each in memory}
    predicted = {use.place: use.used for use in prediction.places}
    return tuple(Peak(place, predicted.get(place), measured.get(place)) for place in {**predicted, **measured})


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
