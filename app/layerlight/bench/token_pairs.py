"""Prompts and tokens in RAM: ours beside plain transformers', each with its weights as they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from layerlight.bench.answers import QUESTION, ask, generated, running_engine
from layerlight.bench.finding import Finding, at_least
from layerlight.bench.machine_state import MachineState
from layerlight.bench.stopwatch import TimedPair, clock_of, line, speeds, timed
from layerlight.core.device import Budget
from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes

CONTEXT = 512
PROMPT = "water " * 43
PROMPT_TOKENS = 256
FASTER, AS_FAST = 3.0, 0.95
"""Times transformers' speed with a prompt: on a CPU without instructions for bf16, and with them."""
DECODE = 0.97
"""The part of transformers' speed from token to token."""
RESIDENT = 1.03
"""The part of the speed of pages of files that makes it worth to read them into memory."""


def measure_prompts(folder: Path, pairs: int, console: Console) -> list[Finding]:
    """Speeds of a prompt of 256 tokens in bf16, as parts of plain transformers'."""
    import torch

    from layerlight.engine.prompt import encode
    from layerlight.engine.single_passes import pays_off

    slow = pays_off(torch.bfloat16)
    with running_engine() as engine:
        model = _both(engine, folder)
        tokenizer = engine.loaded.tokenizer if engine.loaded else None
        text = PROMPT[: PROMPT_TOKENS - len(encode([ChatMessage("user", "")], tokenizer))]
        ids = torch.tensor([encode([ChatMessage("user", text)], tokenizer)])
        found = _pairs(lambda: ask(engine, 1, text), lambda: generated(model, ids, 1), pairs, console)
    kind = "without" if slow else "with"
    name = f"prompt of {ids.shape[1]} tokens in bf16, on a CPU {kind} instructions for it"
    of = f"of transformers' speed {clock_of(found)}"
    return [at_least(name, speeds(found), FASTER if slow else AS_FAST, of)]


def measure_decode(folder: Path, pairs: int, tokens: int, console: Console) -> list[Finding]:
    """Speeds of an answer to a short prompt, as parts of plain transformers'. Raises RunFailed when tokens differ."""
    import torch

    from layerlight.engine.prompt import encode

    with running_engine() as engine:
        model = _both(engine, folder)
        tokenizer = engine.loaded.tokenizer if engine.loaded else None
        ids = torch.tensor([encode([ChatMessage("user", QUESTION)], tokenizer)])
        if list(ask(engine, tokens).tokens) != generated(model, ids, tokens)[1]:
            raise RunFailed("The tokens differ from transformers'.")
        found = _pairs(lambda: ask(engine, tokens), lambda: generated(model, ids, tokens), pairs, console)
    return [at_least("token by token in bf16", speeds(found), DECODE, f"of transformers' speed {clock_of(found)}")]


def measure_resident(folder: Path, pairs: int, tokens: int, console: Console) -> list[Finding]:
    """Speeds of layers that were read into memory, as parts of those that are pages of their files, both ours."""
    with running_engine() as engine, running_engine() as viewing:
        for each in (engine, viewing):
            each.load(load_request(_plan(folder)), Job(lambda _event: None))
        if engine.resident is None or viewing.resident is None:
            raise RunFailed("Nothing is read into memory.")
        viewing.resident.close()
        engine.resident.wait()
        if ask(engine, tokens).tokens != ask(viewing, tokens).tokens:
            raise RunFailed("The tokens differ.")
        found = _pairs(lambda: ask(engine, tokens), lambda: ask(viewing, tokens), pairs, console)
    of = f"of the speed of pages of files {clock_of(found)}"
    return [at_least("read into memory", speeds(found), RESIDENT, of)]


def _pairs(ours: Callable[[], object], theirs: Callable[[], object], count: int, console: Console) -> list[TimedPair]:
    """Pairs of alternating order, after each has run once."""
    ours(), theirs()
    found = []
    for number in range(count):
        state = MachineState()
        if number % 2:
            (other, _), (own, _) = timed(theirs), timed(ours)
        else:
            (own, _), (other, _) = timed(ours), timed(theirs)
        found.append(TimedPair(own, other, state.quiet()))
        console.print(line(number, found[-1]), style="dim", highlight=False)
    return found


def _both(engine: Any, folder: Path) -> Any:
    """Loads ours, lets it read what it reads at leisure, and returns theirs."""
    import torch
    from transformers import AutoModelForCausalLM

    engine.load(load_request(_plan(folder)), Job(lambda _event: None))
    engine.resident.wait()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def _plan(folder: Path) -> Plan:
    from layerlight.engine.survey import survey_machine

    machine = survey_machine()
    here = Budget.of([(device.id, 0) for device in machine.accelerators], CONTEXT)
    return make_plan(inspect_folder(folder), machine, here, Wishes(dtype="bfloat16"))
