"""What `--json` prints: everything shown, as plain values. Sizes in bytes, times in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from layerlight.core.advice import advise
from layerlight.core.device import Machine
from layerlight.core.messages import ModelChecked, ModelLoaded, PlacedLayer, PlaceMemory, RunResult, TextRequest
from layerlight.core.model import Model
from layerlight.core.plan import Plan


def of_machine(machine: Machine) -> dict[str, Any]:
    return {
        "devices": [
            {
                "id": device.id,
                "kind": device.kind,
                "name": device.name,
                "total": device.total,
                "free": device.free,
                "shares_memory_with": device.shares_memory_with,
                "dtypes": list(device.dtypes),
                "kv_caches": None if device.caches is None else list(device.caches),
                "note": device.note,
            }
            for device in machine.devices
        ],
        "bandwidths": dict(machine.bandwidths),
        "torch_build": machine.torch_build,
        "warnings": list(machine.warnings),
    }


def of_model(model: Model) -> dict[str, Any]:
    return {
        "folder": model.folder,
        "name": model.name,
        "kind": model.kind.value,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "bytes": model.size,
        "dtype": model.dtype,
        "context_length": model.context_length,
        "quantization": model.quantization,
        "chat_template": model.chat_template,
        "tokenizer": model.tokenizer,
        "files": list(model.files),
        "components": [
            {"name": component.name, "class": component.class_name, "bytes": component.size}
            for component in model.components
        ],
        "layers": [
            {
                "layer": layer.name,
                "component": layer.component,
                "kind": layer.kind.value,
                "parameters": layer.parameters,
                "bytes": layer.size,
                "tensors": len(layer.tensors),
            }
            for layer in model.layers
        ],
        "tied": [list(group) for group in model.tied],
        "problems": list(model.problems),
        "notes": list(model.notes),
        "hint": model.hint,
    }


def of_plan(plan: Plan) -> dict[str, Any]:
    advice = advise(plan)
    return {
        "folder": plan.model.folder,
        "model": {key: value for key, value in of_model(plan.model).items() if key not in ("layers", "components")},
        "limits": dict(plan.budget.limits),
        "context": plan.budget.context,
        "dtype": plan.dtype,
        "quantization": plan.wishes.quantization,
        "kv_cache": plan.wishes.kv or None,
        "attention": plan.wishes.attention,
        "fits": plan.fits,
        "shortfall": plan.shortfall,
        "checked": plan.checked,
        "verdict": advice.verdict.value,
        "advice": advice.words,
        "hint": advice.hint,
        "notes": list(plan.notes),
        "warnings": list(plan.machine.warnings),
        "placements": [
            {
                "layer": placement.layer,
                "rests_on": placement.rests_on,
                "runs_on": placement.runs_on,
                "bytes": placement.size,
                "dtype": placement.dtype,
                "reason": placement.reason,
            }
            for placement in plan.placements
        ],
        "device_map": plan.device_map(),
        "predicted": _predicted(plan),
    }


def _predicted(plan: Plan) -> dict[str, Any]:
    uses, correction = plan.prediction.places, plan.prediction.correction
    return {
        "bytes": {use.place: use.weights for use in uses},
        "kv": {use.place: use.kv for use in uses},
        "working": {use.place: use.working for use in uses},
        "margin": {use.place: use.margin for use in uses},
        "capacity": {use.place: use.capacity for use in uses},
        "peak": {use.place: use.used for use in uses},
        "seconds": {
            "load": plan.prediction.load_seconds,
            "per_token": plan.prediction.seconds_per_token,
            "prefill": plan.prediction.prefill_seconds,
            "uncorrected_per_token": plan.prediction.seconds_per_token / correction.per_token,
        },
        "last_time": correction.last_time,
        "tokens_a_pass": correction.tokens_a_pass,
        "runs": correction.runs,
        "seconds_per_layer": dict(plan.prediction.seconds_per_layer),
        "calibrated": plan.prediction.calibrated,
    }


def of_run(
    request: TextRequest, checked: ModelChecked | None, loaded: ModelLoaded | None, result: RunResult | None
) -> dict[str, Any]:
    """What `run` adds to its plan; what did not happen any more is null."""
    return {
        "checked": checked is not None,
        "checked_bytes": dict(checked.layers) if checked else None,
        "kv_bytes": checked.kv_bytes if checked else None,
        "unquantized": list(checked.unquantized) if checked else [],
        "sampling": {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "repetition_penalty": request.repetition_penalty,
            "prompt_lookup": request.prompt_lookup,
            "max_new_tokens": request.max_new_tokens,
        },
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "seed": result.seed if result else request.seed,
        "load_seconds": loaded.seconds if loaded else None,
        "text": result.text if result else None,
        "tokens": list(result.tokens) if result else None,
        "prompt_tokens": result.prompt_tokens if result else None,
        "reused": result.reused if result else None,
        "recomputed": result.recomputed if result else None,
        "drafts": _drafts(result),
        "ended": result.ended if result else None,
        "tokens_per_second": result.tokens_per_second if result else None,
        "time_to_first_token": result.time_to_first_token if result else None,
        "seconds_per_layer": dict(result.seconds_per_layer) if result else None,
        "measured": _measured(loaded, result) if loaded else None,
    }


def _drafts(result: RunResult | None) -> dict[str, Any] | None:
    drafts = result.drafts if result else None
    if drafts is None:
        return None
    return {
        "passes": drafts.passes,
        "drafted": drafts.drafted,
        "accepted": drafts.accepted,
        "tokens_a_pass": drafts.tokens_a_pass,
    }


def _measured(loaded: ModelLoaded, result: RunResult | None) -> dict[str, Any]:
    memory = (result.memory if result else ()) or loaded.memory
    pace = result.tokens_per_second if result else None
    return {
        "bytes": _by_place(loaded.placed),
        "peak": {place.place: place.rise for place in memory},
        "process_peak": {place.place: place.peak for place in memory},
        "engine": {place.place: place.before for place in memory},
        "process": {place.place: place.process for place in memory},
        "memory": [_of_place(place) for place in memory],
        "seconds": {
            "load": loaded.seconds,
            "run": result.seconds if result else None,
            "per_token": 1 / pace if pace else None,
        },
        "placements": [
            {
                "layer": placed.layer,
                "rests_on": placed.rests_on,
                "runs_on": placed.runs_on,
                "bytes": placed.size,
                "dtype": placed.dtype,
                "mapped": placed.mapped,
            }
            for placed in loaded.placed
        ],
    }


def _by_place(placed: Iterable[PlacedLayer]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for layer in placed:
        sizes[layer.rests_on] = sizes.get(layer.rests_on, 0) + layer.size
    return sizes


def _of_place(place: PlaceMemory) -> dict[str, Any]:
    return {
        "place": place.place,
        "total": place.total,
        "free": place.free,
        "model": place.model,
        "peak": place.rise,
        "process_peak": place.peak,
        "engine": place.before,
        "process": place.process,
        "anonymous": place.anonymous,
    }
