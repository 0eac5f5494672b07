"""Layers carried to an accelerator measured: ours, accelerate's, and the bus alone, by turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from layerlight.bench.answers import QUESTION, Answer, answer_of, generated, running_engine
from layerlight.bench.finding import Finding, at_least
from layerlight.core.device import CPU, Budget, Device, Machine
from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import LoadRequest
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine
    from layerlight.engine.staged_layers import StagedLayers

FASTER = 3.0
"""Times accelerate's speed."""
OF_BUS = 0.85
"""The part of the speed that copies of the same bytes have from page-locked RAM, with nothing computed."""
CONTEXT = 128
NOBODY = "No accelerator is here: half the layers carried to one from RAM were not measured."


def measure_device(folder: Path, pairs: int, tokens: int, console: Console) -> list[Finding]:
    """Speeds with half of the decoder layers in RAM and an accelerator that runs all, as parts of accelerate's and of
    the bus's own. Where there is none, that is what is found.

    Raises RunFailed when the tokens differ.
    """
    from layerlight.engine.survey import survey_machine

    machine = survey_machine()
    device = next((each for each in machine.accelerators if each.shares_memory_with is None), None)
    if device is None:
        return [Finding(NOBODY)]
    faster, of_bus = [], []
    with running_engine() as engine:
        engine.load(half_away(inspect_folder(folder), machine, device), Job(lambda _event: None))
        staged = _staged(engine)
        theirs = _accelerate(folder, engine, device.id)
        for number in range(pairs):
            before = _bus_alone(staged, device.id)
            ours, answer = answer_of(engine, 2 * tokens)
            bus = (before + _bus_alone(staged, device.id)) / 2
            accelerate, expected = theirs(tokens)
            if answer[:tokens] != expected:
                raise RunFailed("The tokens differ from accelerate's.")
            faster.append(accelerate / ours)
            of_bus.append(bus / ours)
            console.print(_line(number, ours, accelerate, bus), style="dim", highlight=False)
    name = f"half the layers carried to {device.name} from RAM"
    return [
        at_least(name, faster, FASTER, "times accelerate's speed"),
        at_least(name, of_bus, OF_BUS, "of the speed of copies from page-locked RAM alone"),
    ]


def half_away(model: Model, machine: Machine, device: Device) -> LoadRequest:
    """The last half of the decoder layers in RAM, all else on the device, which runs everything."""
    decoders = [layer.name for layer in model.layers if layer.kind is LayerKind.DECODER]
    away = set(decoders[len(decoders) // 2 :])
    wishes = Wishes(
        dtype="bfloat16",
        attention="eager",
        map=tuple((layer.name, CPU if layer.name in away else device.id) for layer in model.layers),
    )
    request = load_request(make_plan(model, machine, Budget(context=CONTEXT), wishes))
    return replace(request, placements=tuple(replace(each, runs_on=device.id) for each in request.placements))


def _staged(engine: TorchEngine) -> StagedLayers:
    if engine.loaded is None or engine.loaded.staged is None:
        raise RunFailed("No layer is carried to the accelerator.")
    return engine.loaded.staged


def _accelerate(folder: Path, engine: TorchEngine, device: str) -> Answer:
    """Answers of plain transformers with the same layers in RAM, carried by accelerate."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = engine.loaded
    places = {each.layer: each.rests_on for each in loaded.placed} if loaded else {}
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, device_map=places, attn_implementation="eager"
    ).eval()
    ids = AutoTokenizer.from_pretrained(folder)(QUESTION, return_tensors="pt")["input_ids"].to(device)

    def answer(tokens: int) -> tuple[float, list[int]]:
        times, told = generated(model, ids, tokens)
        return (times[-1] - times[1]) / (len(told) - 1), told

    return answer


def _bus_alone(staged: StagedLayers, device: str) -> float:
    """Seconds to copy what a pass carries from page-locked RAM, layer after layer, with nothing else to do."""
    import torch

    from layerlight.engine.staging.pinned_buffer import PinnedBuffer

    sizes: dict[str, int] = dict.fromkeys(staged.carried, 0)
    for full, held in staged.held.items():
        layer = next(each for each in sizes if full.startswith(f"{each}."))
        sizes[layer] += held.size
    host = PinnedBuffer(max(sizes.values()), torch.device(device))
    host.tensor.zero_()
    there = torch.empty(host.size, dtype=torch.uint8, device=device)

    def copies() -> None:
        for size in sizes.values():
            there[:size].copy_(host.tensor[:size], non_blocking=True)

    copies()  # a bus may sleep until it is used
    seconds = _seconds(copies, device)
    host.close()
    return seconds


def _seconds(work: Callable[[], None], device: str) -> float:
    import torch

    from layerlight.engine.returning import synchronize

    synchronize(torch.device(device))
    began = time.perf_counter()
    work()
    synchronize(torch.device(device))
    return max(time.perf_counter() - began, 1e-9)


def _line(number: int, ours: float, accelerate: float, bus: float) -> str:
    beside = f"accelerate {1000 * accelerate:.1f} ms, the copies alone {1000 * bus:.1f} ms"
    return f"  {number + 1}: {1000 * ours:.1f} ms, {beside}"
