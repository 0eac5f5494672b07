"""Devices, models and plans in words and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from layerlight.core.advice import advise, lookup_words
from layerlight.core.characters import printable
from layerlight.core.device import Machine, format_size
from layerlight.core.messages import RunResult
from layerlight.core.model import Layer, LayerKind, Model
from layerlight.core.plan import Plan, Prediction

T = TypeVar("T")


def of_machine(machine: Machine) -> str:
    rows = [("place", "name", "total", "free", "runs")]
    for device in machine.devices:
        shared = f"shared with {device.shares_memory_with}" if device.shares_memory_with else ""
        runs = ", ".join(device.dtypes)
        rows.append(
            (
                device.id,
                device.name,
                format_size(device.total),
                format_size(device.free),
                "; ".join(_told(runs, shared)),
            )
        )
    notes = [device.note for device in machine.devices if device.note]
    build = [f"torch {machine.torch_build}"] if machine.torch_build else []
    return "\n".join([columns(rows, right=(2, 3)), *notes, *machine.warnings, *build])


def of_model(model: Model) -> str:
    context = f", context {model.context_length}" if model.context_length else ""
    quantized = f", quantised with {model.quantization}" if model.quantization else ""
    lines = [
        f"{model.name}: {model.kind.value}" + (f", {model.architecture}" if model.architecture else ""),
        f"{format_count(model.parameters)} parameters, {format_size(model.size)}"
        f" in {model.dtype or 'unknown dtype'}{context}{quantized}",
    ]
    if model.layers:
        rows = [("layer", "kind", "bytes", "")]
        layers = _experts_after_layers(model, model.layers, lambda layer: layer.name)
        rows += [_row(list(group)) for _, group in groupby(layers, key=_same)]
        lines += ["", columns(rows, right=(2,))]
    lines += [f"Tied: {', '.join(group)} share their weights and rest together." for group in model.tied]
    lines += list(model.notes)
    if model.problems:
        lines += ["", "It can't be run:", *(f"- {problem}" for problem in model.problems), *_told(model.hint)]
    return "\n".join(lines)


def of_plan(plan: Plan) -> str:
    """Where each layer rests and runs, what each place holds, and what that means."""
    rows = [("layers", "rests on", "runs on", "bytes", "dtype")]
    reasons: list[str] = []
    placed = _experts_after_layers(plan.model, plan.placements, lambda each: each.layer)
    for _, group in groupby(placed, key=lambda each: (each.rests_on, each.runs_on, each.dtype, each.reason)):
        placements = list(group)
        first = placements[0]
        size = format_size(sum(placement.size for placement in placements))
        rows.append((_span([each.layer for each in placements]), first.rests_on, first.runs_on, size, first.dtype))
        if first.reason not in reasons:
            reasons.append(first.reason)
    return "\n".join(
        [title(plan), "", columns(rows, right=(3,)), "", _uses(plan), "", *reasons, *plan.notes, *verdict(plan)]
    )


def title(plan: Plan) -> str:
    words = [
        plan.model.name,
        plan.wishes.quantization or plan.dtype,
        f"context {plan.budget.context}" + (f", KV cache in {plan.wishes.kv}" if plan.wishes.kv else ""),
        "checked" if plan.checked else "estimated",
    ]
    return printable(" · ".join(words))


def verdict(plan: Plan) -> list[str]:
    advice = advise(plan)
    known = plan.prediction.calibrated or plan.prediction.correction.runs
    seconds = "" if known else " (an estimate from typical figures, not measured here)"
    last = plan.prediction.correction.last_time is not None
    return [
        advice.words.rstrip(".") + f"{seconds if plan.fits else ''}.",
        *_told(advice.hint, f"Seconds a token: {_predicted(plan.prediction)}." if last else "", lookup_words(plan)),
        *plan.machine.warnings,
    ]


def of_result(result: RunResult) -> str:
    """One line about a run."""
    pace = f"{result.tokens_per_second:.1f} tokens/s" if result.tokens_per_second else ""
    first = f"first after {result.time_to_first_token:.2f} s" if result.time_to_first_token is not None else ""
    end = f"ended by {result.ended}"
    return " · ".join(_told(f"{len(result.tokens)} tokens", pace, first, f"seed {result.seed}", end, *result.notes))


def of_pace(plan: Plan, result: RunResult) -> str:
    """What was predicted and what it took, in seconds a token."""
    took = f"took {1 / result.tokens_per_second:.3g}" if result.tokens_per_second else ""
    return "Seconds a token: " + ", ".join(_told(_predicted(plan.prediction), took)) + "."


def _predicted(prediction: Prediction) -> str:
    """`predicted 7.9, last time 8.1`."""
    correction = prediction.correction
    before = prediction.seconds_per_token / correction.per_token
    if correction.last_time is not None:
        return f"predicted {before:.3g}, last time {correction.last_time:.3g}"
    return f"predicted {prediction.seconds_per_token:.3g}"


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Rows in aligned columns, two spaces apart; `right` names the columns of numbers."""
    numbers = set(right)
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in numbers else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def format_count(count: int) -> str:
    """`134.5 M` for 134,515,008."""
    for size, unit in ((10**12, " T"), (10**9, " B"), (10**6, " M"), (10**3, " k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _uses(plan: Plan) -> str:
    rows: list[tuple[str, ...]] = [("place", "weights", "KV cache", "working", "together", "may use")]
    for use in plan.prediction.places:
        if use.used:
            may = "no limit" if use.capacity is None else format_size(use.capacity)
            sizes = (use.weights, use.kv, use.working, use.used)
            rows.append((use.place, *(format_size(size) for size in sizes), may))
    return columns(rows, right=range(1, 6))


def _same(layer: Layer) -> tuple[str, LayerKind, int]:
    return layer.component, layer.kind, layer.size


def _row(layers: list[Layer]) -> tuple[str, str, str, str]:
    size = format_size(layers[0].size)
    each = f"each, {format_size(sum(layer.size for layer in layers))} together" if len(layers) > 1 else ""
    return _span([layer.name for layer in layers]), layers[0].kind.value, size, each


def _experts_after_layers(model: Model, things: Sequence[T], name_of: Callable[[T], str]) -> list[T]:
    """The same in the model's order, but all experts after all layers: else no two alike would follow each other."""
    kinds = {layer.name: layer.kind for layer in model.layers}
    experts = [each for each in things if kinds[name_of(each)] is LayerKind.EXPERTS]
    others = [each for each in things if kinds[name_of(each)] is not LayerKind.EXPERTS]
    end = max((at + 1 for at, each in enumerate(others) if kinds[name_of(each)] is LayerKind.DECODER), default=0)
    return [*others[:end], *experts, *others[end:]]


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"


def _told(*words: str) -> list[str]:
    return [word for word in words if word]
