"""A model that is chosen, loaded and asked for one token: ours beside plain transformers', and its memory meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from layerlight.bench.answers import QUESTION, ask, generated, running_engine
from layerlight.bench.finding import Finding, at_most
from layerlight.bench.machine_state import MachineState
from layerlight.bench.stopwatch import TimedPair, Took, clock_of, line, speeds, timed
from layerlight.core.device import CPU, DISK, Budget, Machine, format_size
from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine

CONTEXT = 512
OF_TRANSFORMERS = 1.1
"""The most that ours may take, as a part of what plain transformers takes."""
SLACK = 64 * 2**20
"""Bytes of anonymous memory that a load may take beside what rests in RAM and one layer."""
LIMITED_TO = 0.6
"""The part of a model's bytes that it may take of RAM where it is larger than what it may take."""
_LOOKING = 0.002
"""Seconds between two looks at memory."""


def measure_loads(folder: Path, pairs: int, console: Console) -> list[Finding]:
    """Seconds to the first token in RAM, in pairs of alternating order; each has loaded the model once before.

    The very first load of ours is told too: in it the model is held against its empty one.
    """
    from layerlight.engine.survey import survey_machine

    found = []
    with running_engine() as engine:
        machine = survey_machine()
        _transformers(folder)
        first = _ours(engine, machine, folder)
        for number in range(pairs):
            state = MachineState()
            if number % 2:
                theirs, ours = _transformers(folder), _ours(engine, machine, folder)
            else:
                ours, theirs = _ours(engine, machine, folder), _transformers(folder)
            found.append(TimedPair(ours, theirs, state.quiet()))
            console.print(line(number, found[-1]), style="dim", highlight=False)
    times = [1 / speed for speed in speeds(found)]
    told = at_most("first token", times, OF_TRANSFORMERS, f"of transformers' time {clock_of(found)}")
    words = f"{told.words} The very first time ours took {1000 * first.wall:.0f} ms."
    return [Finding(words, told.missed)]


def measure_memory(folder: Path) -> list[Finding]:
    """What a load and a short answer take: as the weights are stored, cast on the way, and with a limit of RAM."""
    from layerlight.engine.survey import survey_machine

    with running_engine() as engine:
        machine = survey_machine()
        _ours(engine, machine, folder)
        return [
            *(_rise(engine, machine, folder, dtype) for dtype in ("bfloat16", "float32")),
            _kept_to_limit(engine, machine, folder),
        ]


def _ours(engine: TorchEngine, machine: Machine, folder: Path) -> Took:
    """From the choice to the first token."""

    def first_token() -> None:
        engine.load(load_request(_plan(machine, folder)), Job(lambda _event: None))
        ask(engine, 1)

    took, _ = timed(first_token)
    engine.unload(Job(lambda _event: None))
    return took


def _transformers(folder: Path) -> Took:
    """The same with plain transformers, which need not place anything."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from layerlight.engine.heap import trim

    def first_token() -> Any:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        generated(model, tokenizer(QUESTION, return_tensors="pt")["input_ids"], 1)
        return model

    took, model = timed(first_token)
    del model
    gc.collect()
    trim()
    return took


def _plan(machine: Machine, folder: Path, dtype: str = "bfloat16", limit: int | None = None) -> Plan:
    limits = [(device.id, 0) for device in machine.accelerators]
    if limit is not None:
        limits.append((CPU, limit))
    return make_plan(inspect_folder(folder), machine, Budget.of(limits, CONTEXT), Wishes(dtype=dtype))


def _rise(engine: TorchEngine, machine: Machine, folder: Path, dtype: str) -> Finding:
    plan = _plan(machine, folder, dtype)
    resting = sum(each.size for each in plan.placements if each.rests_on == CPU)
    allowed = resting + SLACK + max(each.size for each in plan.placements)
    with _watched() as memory:
        _answer(engine, plan)
    engine.unload(Job(lambda _event: None))
    name = f"anonymous memory in {dtype}"
    words = f"{name}: {format_size(memory.rise)} more at most, {format_size(allowed)} allowed."
    return Finding(words, f"{name}: {format_size(memory.rise - allowed)} too much" if memory.rise > allowed else "")


def _kept_to_limit(engine: TorchEngine, machine: Machine, folder: Path) -> Finding:
    from layerlight.engine.device_memory import process_memory

    limit = int(LIMITED_TO * sum(each.size for each in inspect_folder(folder).layers))
    plan = _plan(machine, folder, limit=limit)
    if all(each.rests_on != DISK for each in plan.placements):
        raise RunFailed("The limit leaves nothing on disk.")
    before = process_memory().resident or 0
    _answer(engine, plan)
    rise = (process_memory().peak or 0) - before
    engine.unload(Job(lambda _event: None))
    words = f"With a limit of {format_size(limit)}: {format_size(rise)} more RAM at most."
    return Finding(words, f"limit: {format_size(rise - limit)} too much" if rise > limit else "")


def _answer(engine: TorchEngine, plan: Plan) -> None:
    engine.load(load_request(plan), Job(lambda _event: None))
    ask(engine, 4)


@dataclass(slots=True)
class _Memory:
    before: int
    most: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def rise(self) -> int:
        return max(0, self.most - self.before)

    def look(self) -> None:
        from layerlight.engine.device_memory import process_memory

        while not self.over.wait(_LOOKING):
            self.most = max(self.most, process_memory().anonymous or 0)


@contextmanager
def _watched() -> Iterator[_Memory]:
    """Anonymous memory while it lasts, looked at from a thread."""
    from layerlight.engine.device_memory import process_memory

    memory = _Memory(process_memory().anonymous or 0)
    thread = threading.Thread(target=memory.look, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        memory.over.set()
        thread.join()
