"""Answers to be timed: ours through the engine, and those of plain transformers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerlight.core.errors import RunFailed
from layerlight.core.job import Job
from layerlight.core.messages import ChatMessage, Event, RunFinished, RunResult, TextRequest

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine

QUESTION = "A river"

Answer = Callable[[int], tuple[float, list[int]]]
"""Seconds a token and the tokens of an answer of so many."""


class Clock:
    """What generate() hands tokens to: the prompt, then each with its time."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""


@contextmanager
def running_engine() -> Iterator[TorchEngine]:
    """A warm engine in this process."""
    from layerlight.engine.warming import warm_up

    warm_up()
    from layerlight.engine.engine import TorchEngine

    engine = TorchEngine()
    try:
        yield engine
    finally:
        engine.close()


def ask(engine: TorchEngine, tokens: int, text: str = QUESTION) -> RunResult:
    """A greedy answer of the loaded model, which keeps nothing of the one before."""
    told: list[Event] = []
    request = TextRequest((ChatMessage("user", text),), seed=0, max_new_tokens=tokens, temperature=0.0)
    engine.kept.drop()
    engine.generate(request, Job(told.append))
    return next(event.result for event in told if isinstance(event, RunFinished))


def answer_of(engine: TorchEngine, tokens: int) -> tuple[float, list[int]]:
    """Seconds a token and the tokens of ours. Raises RunFailed for one that was too short."""
    result = ask(engine, tokens)
    if not result.tokens_per_second:
        raise RunFailed("The answer was too short to be timed.")
    return 1 / result.tokens_per_second, list(result.tokens)


def answering(model: Any, folder: Path) -> Answer:
    """Greedy answers of plain transformers."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(QUESTION, return_tensors="pt")["input_ids"]

    def answer(tokens: int) -> tuple[float, list[int]]:
        times, told = generated(model, ids, tokens)
        return (times[-1] - times[1]) / (len(told) - 1), told

    return answer


def generated(model: Any, ids: Any, tokens: int) -> tuple[list[float], list[int]]:
    """When the prompt and each token of a greedy answer were there, and the tokens."""
    import torch

    clock = Clock()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=clock,
        )
    return clock.times, out[0, ids.shape[1] :].tolist()
