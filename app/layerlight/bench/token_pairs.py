"""Prompts and tokens in RAM: ours beside plain transformers', each with its weights as they are loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from layerlight.bench.answers import answer_of, answering, ask, generated, running_engine
from layerlight.bench.finding import Finding, at_least
from layerlight.core.device import Budget
from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

CONTEXT = 512
PROMPT = "water " * 43
PROMPT_TOKENS = 256
FASTER, AS_FAST = 3.0, 0.95
"""Times transformers' speed with a prompt: on a CPU without instructions for bf16, and with them."""
DECODE = 0.97
"""The part of transformers' speed from token to token."""


def measure_prompts(folder: Path, pairs: int, console: Console) -> list[Finding]:
    """Speeds of a prompt of 256 tokens in bf16, as parts of plain transformers'."""
    import torch

    from layerlight.engine.prompt import encode
    from layerlight.engine.single_passes import pays_off

    slow = pays_off(torch.bfloat16)
    found = []
    with running_engine() as engine:
        model = _both(engine, folder)
        tokenizer = engine.loaded.tokenizer if engine.loaded else None
        text = PROMPT[: PROMPT_TOKENS - len(encode([ChatMessage("user", "")], tokenizer))]
        ids = torch.tensor([encode([ChatMessage("user", text)], tokenizer)])
        generated(model, ids, 1)
        ask(engine, 1, text)
        for number in range(pairs):
            began = time.perf_counter()
            times, _ = generated(model, ids, 1)
            theirs = times[-1] - began
            ours = ask(engine, 1, text).time_to_first_token
            if not ours:
                raise RunFailed("No token came.")
            found.append(theirs / ours)
            console.print(_line(number, ours, theirs), style="dim", highlight=False)
    kind = "without" if slow else "with"
    name = f"prompt of {ids.shape[1]} tokens in bf16, on a CPU {kind} instructions for it"
    return [at_least(name, found, FASTER if slow else AS_FAST, "of transformers' speed")]


def measure_decode(folder: Path, pairs: int, tokens: int, console: Console) -> list[Finding]:
    """Speeds from token to token, as parts of plain transformers'. Raises RunFailed when the tokens differ."""
    found = []
    with running_engine() as engine:
        theirs = answering(_both(engine, folder), folder)
        answer_of(engine, 2), theirs(2)  # both have seen all pages
        for number in range(pairs):
            seconds, answer = answer_of(engine, tokens)
            of_theirs, expected = theirs(tokens)
            if answer != expected:
                raise RunFailed("The tokens differ from transformers'.")
            found.append(of_theirs / seconds)
            console.print(_line(number, seconds, of_theirs), style="dim", highlight=False)
    return [at_least("token by token in bf16", found, DECODE, "of transformers' speed")]


def _both(engine: Any, folder: Path) -> Any:
    """Loads ours, and returns theirs."""
    import torch
    from transformers import AutoModelForCausalLM

    from layerlight.engine.survey import survey_machine

    machine = survey_machine()
    here = Budget.of([(device.id, 0) for device in machine.accelerators], CONTEXT)
    plan = make_plan(inspect_folder(folder), machine, here, Wishes(dtype="bfloat16"))
    engine.load(load_request(plan), Job(lambda _event: None))
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def _line(number: int, ours: float, theirs: float) -> str:
    return f"  {number + 1}: {1000 * ours:.0f} ms, transformers {1000 * theirs:.0f} ms"
